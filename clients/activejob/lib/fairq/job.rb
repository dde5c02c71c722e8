# frozen_string_literal: true

require "active_support/concern"

module Fairq
  # What job classes and jobs have beside what Active Job gives them.
  #
  #     class ReportJob < ActiveJob::Base
  #       fairq_group { |job| job.arguments.first.tenant_id }
  #     end
  #
  #     ReportJob.set(group: "bob", dedup_key: "report 7").perform_later(...)
  module Job
    extend ActiveSupport::Concern

    # What a job keeps of its options over retries.
    KEPT = %w[group dedup_key dedup_until dedup_for max_attempts cost headers].freeze

    # What is said of its first attempt alone: a retry has begun, and replaces nothing.
    ONCE = %w[expires_at replace].freeze

    included do
      class_attribute :_fairq_group, instance_accessor: false, instance_predicate: false
    end

    class_methods do
      # The group of this class's jobs: what the block returns for the job, or a name.
      def fairq_group(name = nil, &block)
        self._fairq_group = block || name
      end

      # The name of the tasks of this class, for producers and workers that are not
      # written in Ruby.  A class that is loaded when it is first needed has its name
      # in Fairq.tasks instead.
      def fairq_task(name)
        Fairq.tasks[name.to_s] = self.name
      end
    end

    # For how long the job is to wait, in seconds, from when it is enqueued by the
    # server's clock; nil: until scheduled_at.
    attr_reader :fairq_wait

    def fairq_options
      @fairq_options ||= {}
    end

    # Those of ONCE, when it is enqueued with them.
    def fairq_once
      @fairq_once ||= {}
    end

    def enqueue(options = {})
      given = options.to_h.transform_keys(&:to_s).compact
      fairq_options.merge!(given.slice(*KEPT))
      fairq_options["dedup_for"] = given["dedup_for"].to_f if given["dedup_for"]
      @fairq_once = given.slice(*ONCE)
      @fairq_wait = options[:wait]&.to_f unless options[:wait_until]
      super(options.except(*(KEPT + ONCE).map(&:to_sym)))
    end

    def serialize
      fairq_options.empty? ? super : super.merge("fairq" => fairq_options)
    end

    def deserialize(data)
      super
      @fairq_options = data["fairq"].to_h.slice(*KEPT)
    end

    # The group in which the job is enqueued.
    def fairq_group
      key = fairq_options["group"] || group_of(self.class._fairq_group) ||
            group_of(Fairq.group) || self.class.name
      case key
      when String, Symbol, Integer
        key.to_s
      else
        raise ArgumentError, "the group of #{self.class.name} must be a string, symbol or " \
                             "integer, not #{key.inspect.truncate(80)}"
      end
    end

    private

    def group_of(setting)
      setting.respond_to?(:call) ? setting.call(self) : setting
    end
  end
end
