# frozen_string_literal: true

module Fairq
  # An attempt at a task, as its job sees it: Fairq.current_task.
  class Task
    COLUMNS = "id, attempt, group_key, payload, queue, headers, attempts_left, priority, " \
              "extract(epoch FROM enqueued_at) AS enqueued_at"

    attr_reader :id, :attempt, :group, :queue, :headers, :attempts_left, :priority, :enqueued_at

    def initialize(worker, row)
      @worker = worker
      @id, @attempt, @attempts_left, @priority =
        row.values_at("id", "attempt", "attempts_left", "priority").map(&:to_i)
      @group = row["group_key"]
      @queue = row["queue"]
      @payload = row["payload"]
      @headers = row["headers"] ? JSON.parse(row["headers"], max_nesting: false) : {}
      @enqueued_at = Time.at(row["enqueued_at"].to_r)
      @replacements = []
      @stopped = @completed = false
    end

    def payload
      JSON.parse(@payload, max_nesting: false)
    end

    # The name by which a handler is found.
    def name
      @headers["task"]
    end

    # ---- for jobs

    # To be called now and then in long work: raises Stopped if it is in vain.
    def check!
      raise Stopped if @stopped
    end

    # Was the task cancelled, or its lease lost?
    def stopped?
      @stopped
    end

    # Is the worker to end?  What has not ended after its grace is handed back.
    def stopping?
      @worker.stopping?
    end

    # Says how far the work is, for fairq.tasks.progress.
    def progress(value)
      @stopped = true unless @worker.call(self, "set_progress", JSON.generate(value), cast: "jsonb")
      check!
    end

    # What is kept as the task's result, if the queue retains.
    def result=(value)
      @result = JSON.generate(value, max_nesting: 0)
    end

    # Completes the task in the transaction that the job has open, by the same
    # connection as jobs are enqueued: so what it does there is done exactly once.
    def complete!
      @completed = true
      raise Stopped unless Producer.complete(@id, @attempt, @result)
    end

    # ---- for the worker and the adapter

    attr_accessor :job, :begun, :ended
    attr_reader :replacements

    def stop!
      @stopped = true
    end

    # Has the job called complete!?  Its transaction may have been rolled back.
    def completed?
      @completed
    end

    def job?(job)
      @job&.job_id == job.job_id
    end

    # The job enqueues itself again, once this task has ended well.
    def replace_by(job, values)
      @replacements << [job, values]
    end

    def result_json
      @result
    end

    # How long the work took, for queues that are fair by time.
    def took
      Database.interval(@ended - @begun)
    end

    def to_s
      "task #{@id} of #{@group}, attempt #{@attempt}"
    end
  end
end
