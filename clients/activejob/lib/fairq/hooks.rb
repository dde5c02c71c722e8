# frozen_string_literal: true

module Fairq
  # Blocks that a worker calls around each attempt, in the job's thread.
  #
  #     Fairq.on(:error) { |task, error| ErrorTracker.report(error, task: task.id) }
  #
  # One of :after, :error and :lost follows :before.  If a block raises, the worker
  # logs the error and continues.
  module Hooks
    NAMES = %i[before after error lost].freeze

    @blocks = NAMES.to_h { |name| [name, []] }

    module_function

    def add(name, block)
      raise ArgumentError, "there is no hook #{name.inspect}, only #{NAMES.join(", ")}" unless NAMES.include?(name)
      raise ArgumentError, "a hook needs a block" unless block

      @blocks[name] << block
    end

    def call(name, task, *rest)
      @blocks[name].each do |block|
        block.call(task, *rest)
      rescue StandardError => error
        Fairq.logger.error("#{task.label}: the hook \"#{name}\" failed: #{Report.with_causes(error)}")
      end
    end

    # Calls a hook at the end of an attempt. The outcome of the job determines
    # which hook.
    def ended(task, how, error = nil, quiet: false, **)
      return unless task.first_end?

      error ||= task.retry_error if how == :complete && !task.interrupted?
      if how == :lost || quiet
        call(:lost, task)
      else
        error.nil? ? call(:after, task) : call(:error, task, error)
      end
    end
  end
end
