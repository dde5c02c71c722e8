# frozen_string_literal: true

require "fairq"
require "fairq/ends"
require "fairq/progress"
require "fairq/report"
require "fairq/task"

module Fairq
  # For tests: runs the ready jobs that the test's transaction sees, in this transaction.
  #
  #     class OrderTest < ActiveSupport::TestCase
  #       include Fairq::Testing
  #
  #       test "an order sends an email" do
  #         Order.place("bob")
  #         assert_equal ["MailJob"], run_tasks("mail").map { |ran| ran.job.class.name }
  #       end
  #     end
  #
  # No worker sees the tasks that the transaction has enqueued, since nothing is
  # committed.  A rollback at the end of the test removes them.
  module Testing
    # A task that was run, its job, and the Dead or Retry that the job has raised.
    Ran = Struct.new(:task, :job, :error) do
      # The result that the job has set.
      def result
        task.result_json && JSON.parse(task.result_json)
      end
    end

    CHANGED = "SELECT (pg_current_xact_id_if_assigned() IS NOT NULL)::text"
    POP = "SELECT #{Task::COLUMNS}, #{Task::TEXTS} FROM fairq.pop($1::text[], 1, worker => 'test')"
    NAMES = (Task::COLUMNS.gsub(/extract\(.*AS /, "").split(", ") + %w[payload headers progress]).freeze

    module_function

    # Runs ready tasks of the queues one by one, including tasks that they enqueue.  Returns a
    # list of Ran.  Errors of a job are raised here, except Dead and Retry.  Raises Error if
    # there are more than "most" tasks.
    def run_tasks(*queues, most: 1000)
      ran = []
      return ran unless Producer.ask(CHANGED, "Fairq Changed", []) == "true"

      runner = Runner.new
      while (row = Producer.rows(POP, "Fairq Pop", [Producer.array(queues.map(&:to_s))]).first)
        task = Task.new(runner, NAMES.zip(row).to_h)
        raise Error, "the limit of #{most} tasks is reached, and another one is ready: #{task}" if ran.size == most

        ran << runner.run(task)
      end
      ran
    end

    # Ends attempts on the connection for enqueueing, in the place of a worker.
    class Runner
      def lease
        60
      end

      def stopping?
        false
      end

      def call(task, function, value = nil, cast: nil)
        tell(Ends.call(function, cast), [task.id.to_s, task.attempt.to_s, *(value if cast)])
      end

      def run(task)
        task.begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        perform(task)
        complete(task)
        Ran.new(task, task.job)
      rescue Dead, Retry => error
        task.save_rest
        ending = error.is_a?(Dead) ? { dead: true } : { wait: error.wait }
        tell(Ends::FAIL, Ends.fail_values(task, Report.archived(error), **ending))
        Ran.new(task, task.job, error)
      end

      private

      def perform(task)
        before = Fairq.current_task
        Fairq.current_task = task
        ActiveJob::Callbacks.run_callbacks(:execute) { task.load_job.perform_now }
      ensure
        Fairq.current_task = before
      end

      # Completes the task, and enqueues its job again if Active Job retries it.
      def complete(task)
        if task.batch && task.replacements.any?
          task.save_retries(task.job)
          tell(Ends::RETRY, Ends.retry_values(task))
        elsif !task.completed?
          tell(Ends::COMPLETE, Ends.complete_values(task))
          task.replacements.each { |job, values| job.provider_job_id = Producer.enqueue(values) }
        end
      end

      # Whether the statement has had an effect.  Active Record would decode a boolean.
      def tell(sql, values)
        Producer.ask("#{sql}::text", "Fairq Test", values) == "true"
      end
    end
  end
end
