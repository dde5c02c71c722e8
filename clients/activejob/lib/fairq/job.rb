# frozen_string_literal: true

require "active_support/concern"

module Fairq
  # Additions to job classes and jobs of Active Job.
  #
  #     class ReportJob < ActiveJob::Base
  #       fairq_group { |job| job.arguments.first.tenant_id }
  #     end
  #
  #     ReportJob.set(group: "bob", dedup_key: "report 7").perform_later(...)
  module Job
    extend ActiveSupport::Concern

    # Options that a job keeps when it is retried.
    KEPT = %w[group dedup_key dedup_until dedup_for max_attempts cost headers].freeze

    # Options of one call only.  A retry does not need them, because the task
    # has already started, replaces no task, and stays in its batch.
    ONCE = %w[expires_at replace batch waits after after_any].freeze

    # Refuses a string or a date, which has no time zone.  For a string, to_f would return the year.
    def self.check_time(name, value)
      return if value.nil? || value.is_a?(Numeric) || value.acts_like?(:time)

      raise ArgumentError, "#{name} must be a time, or seconds since 1970, not #{value.inspect}"
    end

    # The id of a task, given as an enqueued job or as an id.
    def self.id_of(job)
      return Integer(job) unless job.respond_to?(:provider_job_id)

      job.provider_job_id || raise(ArgumentError, "the job #{job.class.name} was not enqueued")
    end

    included do
      class_attribute :_fairq_group, instance_accessor: false, instance_predicate: false
      class_attribute :_fairq_timeout, instance_accessor: false, instance_predicate: false
    end

    class_methods do
      # The group of this class's jobs: the block's value for the job, or a name.
      def fairq_group(name = nil, &block)
        self._fairq_group = block || name
      end

      # Sets, if given, the number of seconds that a job of this class may run.  Returns the number.
      def fairq_timeout(seconds = nil)
        self._fairq_timeout = seconds.to_f if seconds
        _fairq_timeout
      end

      # The name of this class's tasks for producers and workers in other languages.  For a lazily
      # loaded class, set Fairq.tasks instead.
      def fairq_task(name)
        Fairq.tasks[name.to_s] = self.name
      end
    end

    def fairq_timeout
      self.class.fairq_timeout
    end

    # The job's delay in seconds, which is added to the server's clock; nil: the
    # job waits until scheduled_at.
    attr_reader :fairq_wait

    def fairq_options
      @fairq_options ||= {}
    end

    # The job's options that apply to one call only.
    def fairq_once
      @fairq_once ||= {}
    end

    def enqueue(options = {})
      @fairq_once = {}
      @fairq_wait = nil unless options[:wait_until]
      super(take_fairq_options(options))
    end

    # Sets options of a job for perform_all_later, in Active Job 7.1 and later.
    def set(options = {})
      super(take_fairq_options(options))
    end

    def serialize
      fairq_options.empty? ? super : super.merge("fairq" => fairq_options)
    end

    def deserialize(data)
      super
      @fairq_options = data["fairq"].to_h.slice(*KEPT)
      # the empty group of an existing task was chosen on purpose
      @fairq_options["group"] = NO_GROUP if @fairq_options["group"] == ""
    end

    # The group of the job.
    def fairq_group
      key = fairq_options["group"] || group_of(self.class._fairq_group) ||
            group_of(Fairq.group) || self.class.name
      case key
      when NO_GROUP
        ""
      when "", :""
        raise ArgumentError, "the group of #{self.class.name} is empty: name one, or use Fairq::NO_GROUP"
      when String, Symbol, Integer
        key.to_s
      else
        raise ArgumentError, "the group of #{self.class.name} must be a string, symbol or " \
                             "integer, not #{key.inspect.truncate(80)}"
      end
    end

    private

    # Keeps fairq's options, and returns Active Job's options.
    def take_fairq_options(options)
      %i[wait_until expires_at].each { |name| Job.check_time("#{name} of #{self.class.name}", options[name]) }
      given = options.to_h.transform_keys(&:to_s).compact
      fairq_options.merge!(given.slice(*KEPT))
      fairq_options["dedup_for"] = given["dedup_for"].to_f if given["dedup_for"]
      @fairq_once = fairq_once.merge(given.slice(*ONCE))
      @fairq_wait = given["wait"].to_f if given["wait"] && !given["wait_until"]
      options.except(*(KEPT + ONCE).map(&:to_sym))
    end

    def group_of(setting)
      setting.respond_to?(:call) ? setting.call(self) : setting
    end
  end
end
