# frozen_string_literal: true

# The application of the tests.  Its jobs write their events as lines of JSON.  With
# RECORD=1 it uses Active Record.

require "fairq"

$stdout.sync = true
ActiveJob::Base.queue_adapter = :fairq
ActiveJob::Base.logger = Logger.new(nil)

# a child that a job has forked has another process ID
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

if ENV["NOTIFY"]
  ActiveSupport::Notifications.subscribe("start.fairq") do |*, values|
    $stdout.write("#{JSON.generate({ event: "started", id: nil, **values })}\n")
  end
  ActiveSupport::Notifications.subscribe("attempt.fairq") do |*, values|
    $stdout.write("#{JSON.generate({ event: "notified", id: values[:task].id, outcome: values[:outcome],
                                     error: values[:error]&.message, duration: values[:duration] })}\n")
  end
end

if ENV["NOTIFY"] == "broken"
  %w[start.fairq attempt.fairq].each do |name|
    ActiveSupport::Notifications.subscribe(name) { raise IOError, "no subscriber of this kind" }
  end
end

if ENV["HOOKS"]
  Fairq.on(:error) { raise IOError, "no hook of this kind" }
  Fairq::Hooks::NAMES.each do |name|
    Fairq.on(name) do |task, error|
      $stdout.write("#{JSON.generate({ event: "hook", id: task.id, attempt: task.attempt, name: name,
                                       error: error&.message })}\n")
    end
  end
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

# Calls stopping? of the adapter, as Active Job's continuations do at a checkpoint.
class StoppingJob < Base
  def perform
    say("begin")
    sleep(0.02) until queue_adapter.stopping?
    say("stopping", stopping: queue_adapter.stopping?)
  end
end

class StatusJob < Base
  def perform
    2.times do
      status = Fairq.worker.status
      say("status", **status, tasks: status[:tasks].map(&:id))
      sleep(0.02) until queue_adapter.stopping?
    end
  end
end

if ENV["SCHEDULES"]
  Fairq.schedule("tidy", every: 1, group: "g", priority: 3) { EchoJob.new(1, 2) }
  # the last multiples of this interval are in 1997 and 2024
  Fairq.schedule("late", every: 10_000.days, catch_up: 30_000.days) { RetryJob }
  Fairq.schedule("later", every: 10_000.days) { EchoJob }
  Fairq.schedule("wrong", every: 1) { raise IOError, "no job of this kind" }
  if ENV["SCHEDULES"] == "cron"
    Fairq.schedule("zone", cron: "0 8 1 jan * Europe/Berlin", catch_up: 400.days) { EchoJob }
    Fairq.schedule("utc", cron: "0 8 1 jan *", catch_up: 400.days) { EchoJob }
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

class MuteError < StandardError
  def message
    raise IOError, "no message"
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
    when "nested" then nested
    when "mute" then raise MuteError
    else raise how
    end
    say("end")
  end

  def nested
    raise "inner"
  rescue RuntimeError
    raise ArgumentError, "outer"
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
    task.progress = { percent: 50 }
    task.result = result == "nul" ? "\0" : result
    say("task", left: task.attempts_left, headers: task.headers.keys.sort, payload: task.payload,
                priority: task.priority)
  end
end

class ResumedJob < Base
  def perform
    @task = Fairq.current_task
    say("resumed", progress: @task.progress, cursor: @task.cursor)
    @task.attempt == 1 ? first : last
  end

  private

  def first
    @task.progress = [1]
    say("refused", error: refused { @task.step("s") { 1 } })
    @task.progress = { page: 1 }
    say("step", result: @task.step(:symbols) { { a: :b } })
    say("refused", error: refused { @task.step("zero") { "\0" } })
    5.times { |n| @task.checkpoint!(n) }
    raise Fairq::Retry.new(wait: 0)
  end

  def last
    say("step", result: @task.step("symbols") { raise "again" })
    @task.progress = nil
  end

  def refused
    yield
  rescue StandardError => error
    error.class.name
  end
end

# Uses Active Job's continuations, from 8.1 on.  The job's first process dies in the second
# step.
if ActiveJob.const_defined?(:Continuable)
  class ContinuedJob < Base
    include ActiveJob::Continuable

    def perform
      step(:one) { say("one") }
      step(:two, start: 0) do |step|
        say("two", cursor: step.cursor)
        10.times { step.advance! }
        sleep(1.1) # a third of a lease
        step.advance!
        Process.kill(:KILL, Process.pid) if Fairq.current_task.attempt == 1
      end
    end
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

class PartJob < RetryJob
  def perform(how)
    say("begin", batch: Fairq.current_task.batch&.id)
    raise Failure, "not this time" if how == "retry" && executions < 3
    raise Fairq::Dead, "never" if how == "dead"
  end
end

class ReportJob < Base
  def perform(name)
    say("report", name: name, counts: Fairq.current_task.headers["batch"], queue: queue_name)
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

if ENV["PLAIN"]
  Fairq.handle("greet", timeout: 1) do |payload, task|
    raise Fairq::Dead, "nobody" unless payload["to"]

    sleep(30) if payload["to"] == "late"
    EchoJob.perform_later(payload["to"])
    { hello: payload["to"], attempt: task.attempt }
  end
  Fairq.handle { |payload| payload }
end

class TestedJob < ActiveJob::Base
  queue_as :jobs
  retry_on(IOError, wait: 60, attempts: 2)

  def perform(how, n = 0)
    task = Fairq.current_task
    case how
    when "more"
      self.class.perform_later(how, n - 1) if n > 1
      task.result = n
    when "forever" then self.class.perform_later(how)
    when "dead" then raise Fairq::Dead, "no"
    when "later" then raise Fairq::Retry.new(wait: 60)
    when "again" then raise IOError, "not this time"
    when "steps"
      task.checkpoint!(task.step("first") { 5 })
      task.result = task.cursor
      task.complete!
    else raise "it broke"
    end
  end
end
