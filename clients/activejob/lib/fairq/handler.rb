# frozen_string_literal: true

module Fairq
  # A handler of tasks that are not jobs of Active Job.
  #
  #     Fairq.handle("send") { |payload, task| deliver(payload["to"]) }
  #
  # The value of the block is the task's result.
  class Handler
    @all = {}

    class << self
      # {name of a task => its handler}
      attr_reader :all
    end

    # timeout: seconds that an attempt may take; nil: the worker's timeout
    # applies
    def initialize(name, timeout: nil, &block)
      raise ArgumentError, "the handler of #{name.inspect} needs a block" unless block

      @timeout = timeout
      @block = block
    end

    # The attempt of such a handler, in the place of a job of Active Job.
    Attempt = Struct.new(:task, :fairq_timeout, :block) do
      def job_id
        nil
      end

      def perform_now
        value = block.call(task.payload, task)
        task.result = value unless value.nil?
      end
    end

    def attempt(task)
      Attempt.new(task, @timeout, @block)
    end
  end
end
