# frozen_string_literal: true

module Fairq
  # Statements about an attempt, and their values.
  module Ends
    COMPLETE = "SELECT fairq.complete($1::bigint, $2::int, $3::jsonb, took => $4::interval)"
    FAIL = "SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval, " \
           "dead => $5::boolean, took => $6::interval)"

    # No task can be added to a closed batch, which ends with its last task.  So the retry of a
    # batch's job uses the same task, in the same queue.
    RETRY = "SELECT fairq.fail($1::bigint, $2::int, $3::text, took => $4::interval, retry_in => " \
            "coalesce($5::interval, greatest($6::timestamptz - clock_timestamp(), '0')))"

    module_function

    def complete_values(task)
      [task.id.to_s, task.attempt.to_s, task.result_json, task.took]
    end

    # wait: seconds until the retry; nil: the queue's backoff
    def fail_values(task, text, dead: false, wait: nil)
      [task.id.to_s, task.attempt.to_s, text, wait && Database.interval(wait), dead.to_s, task.took]
    end

    # The values of RETRY, for a task whose job has enqueued itself again.
    def retry_values(task)
      error = task.retry_error
      text = error ? Report.archived(error) : "the job has enqueued itself again"
      times = task.replacements.last.last.values_at(Producer::WAIT, Producer::RUN_AT)
      [task.id.to_s, task.attempt.to_s, text, task.took, *times]
    end

    # The SQL that calls another function for the attempt.  With cast, the call
    # has one more argument, of this type.
    def call(function, cast)
      "SELECT fairq.#{function}($1::bigint, $2::int#{", $3::#{cast}" if cast})"
    end
  end
end
