# frozen_string_literal: true

# The application of the tests: jobs that write down what happens to them, a line of
# JSON each.  With RECORD=1 it has Active Record.

require "fairq"

$stdout.sync = true
ActiveJob::Base.queue_adapter = :fairq
ActiveJob::Base.logger = Logger.new(nil)

# not of a child that a job has forked
APPLICATION = Process.pid
at_exit { $stdout.write("#{JSON.generate({ event: "exit", id: nil })}\n") if Process.pid == APPLICATION }

if ENV["RECORD"]
  require "active_record"
  ActiveRecord::Base.establish_connection(adapter: "postgresql", pool: 8)

  class Record < ActiveRecord::Base
    self.table_name = "activejob_records"
    include GlobalID::Identification
  end
  GlobalID.app = "test"
end

class Base < ActiveJob::Base
  queue_as :jobs

  def say(event, **more)
    task = Fairq.current_task
    $stdout.write("#{JSON.generate({ event: event, id: task.id, attempt: task.attempt, job: job_id,
                                     executions: executions, **more })}\n")
  end
end

class EchoJob < Base
  def perform(*arguments, **named)
    say("echo", arguments: arguments, named: named, name: self.class.name, locale: I18n.locale,
                provider: provider_job_id, group: Fairq.current_task.group, queue: queue_name,
                kept: fairq_options, classes: (arguments + named.values).map { |value| value.class.name })
  end
end

# As Active Job's continuations do at a checkpoint.
class StoppingJob < Base
  def perform
    say("begin")
    sleep(0.02) until queue_adapter.stopping?
    say("stopping", stopping: queue_adapter.stopping?)
  end
end

class HashJob < Base
  def perform(options)
    say("hash", keys: options.keys.map(&:inspect))
  end
end

class BlockJob < EchoJob
  fairq_group { |job| job.arguments.first }
end

class NamedJob < EchoJob
  fairq_group "reports"
  fairq_task "named by hand"
  queue_with_priority 4
end

class RetryJob < Base
  class Failure < StandardError; end
  retry_on Failure, wait: 0, attempts: 3

  def perform(**)
    say("begin")
    raise Failure, "not this time"
  end
end

class BlockRetryJob < RetryJob
  retry_on(Failure, wait: 0, attempts: 2) { |job, error| job.say("stopped", error: error.message) }
end

class ElsewhereJob < Base
  rescue_from(IOError) { retry_job(queue: arguments.first, wait: 0, priority: 7) }

  def perform(_queue, seconds = 0)
    say("begin", queue: queue_name)
    sleep(seconds)
    raise IOError, "away from here" if queue_name == "jobs"
  end
end

class DiscardJob < Base
  discard_on(KeyError) { |job, error| job.say("discarded", error: error.message) }
  discard_on ActiveJob::DeserializationError

  def perform(*)
    raise KeyError, "of no use"
  end
end

class RecordJob < Base
  def perform(record)
    say("record", name: record.name)
  end
end

class RaiseJob < Base
  retry_on StandardError, wait: 0, attempts: 1

  def perform(how, *rest)
    say("begin")
    case how
    when "dead" then raise Fairq::Dead, rest.first
    when "retry" then raise Fairq::Retry.new(wait: rest.first) if Fairq.current_task.attempt == 1
    when "stopped" then raise Fairq::Stopped
    when "exit" then exit
    when "thread" then Thread.current.kill if Fairq.current_task.attempt == 1
    when "bytes" then raise "a \xff b \0 c".b
    when "rescued"
      begin
        raise Fairq::Dead, rest.first
      rescue => error
        say("swallowed")
      end
    else raise how
    end
    say("end")
  end
end

class SleepJob < Base
  def perform(seconds, heed = true)
    say("begin")
    over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    while Process.clock_gettime(Process::CLOCK_MONOTONIC) < over
      sleep(0.02)
      Fairq.current_task.check! if heed
    end
    say("end", stopped: Fairq.current_task.stopped?, stopping: Fairq.current_task.stopping?)
  rescue Fairq::Stopped
    say("stopped")
    raise
  ensure
    say("left")
  end
end

class TaskJob < Base
  def perform(result)
    task = Fairq.current_task
    task.progress({ percent: 50 })
    task.result = result == "nul" ? "\0" : result
    say("task", left: task.attempts_left, headers: task.headers.keys.sort, payload: task.payload,
                priority: task.priority)
  end
end

class OnceJob < Base
  retry_on(IOError, wait: 0, attempts: 2)

  def perform(how)
    say("begin")
    sleep(3) if how == "lost" && Fairq.current_task.attempt == 1
    ActiveRecord::Base.transaction do
      Record.create!(name: how)
      Fairq.current_task.complete!
      raise ActiveRecord::Rollback if how == "rollback" && Fairq.current_task.attempt == 1
      raise "after all" if how == "raise" && Fairq.current_task.attempt == 1
      raise IOError if how == "retry" && executions == 1
    end
    say("end")
  end
end

class ForkJob < Base
  def perform
    _, ended = Process.wait2(fork { nil })
    child = fork { sleep }
    sleep(0.5)
    Process.kill(:TERM, child)
    _, told = Process.wait2(child)
    say("forked", status: ended.exitstatus, signal: told.termsig)
  end
end

class ParentJob < Base
  def perform(how)
    ActiveRecord::Base.transaction do
      EchoJob.perform_later(how)
      raise "after all" if how == "raise"
    end
  end
end
