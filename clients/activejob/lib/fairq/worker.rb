# frozen_string_literal: true

require "socket"

require "fairq"
require "fairq/ends"
require "fairq/presence"
require "fairq/progress"
require "fairq/report"
require "fairq/session"
require "fairq/task"
require "fairq/timeouts"

module Fairq
  # Runs jobs, each in a thread, and takes them strictly in the given order of
  # queues.
  #
  # One thread pops and sleeps in fairq.wait, another one renews leases, and a
  # third one enqueues the jobs of schedules.  run() waits for the end.  All
  # threads share @running, which @lock protects.  @changed is signalled at each
  # change.
  #
  # poll: seconds between polls for tasks.  nil: sleep in fairq.wait; through a pooler, 1.
  # 0: sleep in fairq.wait, also through a pooler.
  #
  # timeout: seconds that a job may run, unless its class has fairq_timeout; nil: no limit.
  # A job that does not end by then fails, but keeps its slot.
  #
  # give_up: seconds for which to retry if the server refuses the connection for a lasting
  # reason; nil: forever.
  #
  # alive: a file that the worker writes every second while it works.
  #
  # A task whose lease has expired before may have killed its process, so it runs alone.
  class Worker
    SECONDS_MORE = 4 # seconds at the worker's end for a server that is down or does not answer
    SLEEP = 30 # seconds in fairq.wait, after which a vanished server is detected

    attr_reader :concurrency, :lease, :grace

    def initialize(queues, concurrency: 4, lease: 60, grace: 5, poll: nil, name: nil,
                   timeout: nil, give_up: 60, alive: nil)
      @queue_names = queues
      @queues = PG::TextEncoder::Array.new.encode(queues)
      @concurrency = concurrency
      @lease = lease
      @grace = grace
      @timeout = timeout
      @name = name || "#{Socket.gethostname}:#{Process.pid}"
      @stop = Stop.new
      @popper = Session.new(@stop, give_up: give_up) # for pop and fairq.wait
      @over = Stop.new
      # This connection ends tasks until the worker ends.  It also renews the
      # leases, so its limit is shorter than the lease.
      @keeper = Session.new(@over, limit: (lease / 3.0).clamp(2, Connection::LIMIT))
      @running = []
      @stuck = 0 # number of slots of jobs that did not end after their timeout
      @careful = false
      @renewed = now
      @timeouts = Timeouts.new { |task| abandon(task) }
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @poll = poll
      @presence = Presence.new(@keeper, @name, @queues, concurrency) { @lock.synchronize { @running.size } }
      @alive = alive
    end

    # Ends run().  A signal handler may call this.
    def stop
      @stop.set
    end

    def stopping?
      @stop.set?
    end

    # The worker's state.  Its :tasks are those that have not ended.  Any thread may call
    # this method.
    def status
      tasks = @lock.synchronize { @running.dup }
      { name: @name, queues: @queue_names.dup, concurrency: @concurrency, running: tasks.size,
        stopping: stopping?, tasks: tasks }
    end

    # Works until stop().  Raises errors of the server.  Returns whether all
    # jobs have ended.  If not, the worker has released the tasks of the other
    # jobs, whose threads continue.
    def run
      Fairq.worker = self
      popping = Thread.new { pop_tasks }
      popping.report_on_exception = false
      others = [Thread.new { keep_leases }, Thread.new { keep_schedules }]
      @presence.write(@alive) if @alive
      @stop.wait
      limit = now + @grace + SECONDS_MORE
      @lock.synchronize { @changed.broadcast }
      ended = popping_ended?(popping, limit) && all_ended?
      hand_back(limit) unless ended
      ended &&= @stuck.zero?
      raise @refused if @refused

      ended
    ensure
      @stop.set
      @presence.leave
      @over.set
      others&.each(&:kill)
    end

    # The result of a function of fairq for an attempt, as text; nil: the result
    # is NULL or false.
    def call(task, function, value = nil, cast: nil)
      values = [task.id.to_s, task.attempt.to_s, *(value if cast)]
      said = @keeper.query(Ends.call(function, cast), values, brief: true).getvalue(0, 0)
      said unless said == "f"
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # ---- taking tasks

    def pop_tasks
      until @stop.set?
        room = wait_for_room
        break if @stop.set?

        renew_overdue
        tasks = pop(room)
        begin_tasks(tasks)
        wait_for_tasks if tasks&.empty?
      end
    rescue StandardError => error
      @refused = error
    ensure
      @stop.set
    end

    # How many tasks to pop.  After a task that must run alone, more such tasks may follow, and the
    # worker would only release them.  So it then pops one task at a time.
    def wait_for_room
      @lock.synchronize do
        @changed.wait(@lock) until @stop.set? || @running.size < (@careful ? 1 : slots)
        @careful ? 1 : slots - @running.size
      end
    end

    def slots
      @concurrency - @stuck
    end

    # If the server was down, the worker renews the leases before it pops again.
    # Otherwise a task whose lease has expired could run here twice.
    def renew_overdue
      running = @lock.synchronize { @running.dup }
      extend_leases(running) if running.any? && now - @renewed > @lease * 2 / 3.0
    end

    # The tasks of a pop; nil: the connection is lost.
    def pop(room)
      tasks = claims(room).map { |row| Task.new(self, row) }
      @presence.register
      @announced ||= announce
      tasks
    rescue PG::QueryCanceled # cancelled by a statement_timeout
      []
    rescue PG::Error => error
      survive(error)
      nil
    end

    def survive(error)
      raise error unless Database.passing?(error)

      Fairq.logger.warn(Database.one_line(error)) unless Database.lost?(error) # logged already
      @stop.wait(1)
    end

    # Logs the start.  Without an answer from the server, the next pop tries again.
    def announce
      versions = @popper.query("SELECT fairq.version() AS extension, current_setting('server_version') AS server",
                               [], once: true).first
      Report.start({ worker: @name, queues: @queue_names, concurrency: @concurrency, client: VERSION,
                     **versions.transform_keys(&:to_sym) })
      true
    rescue PG::Error, Error
      false
    end

    def claims(room)
      claim("#{Task::COLUMNS}, #{Task::TEXTS}", room)
    rescue *Database::UNPRINTABLE
      # A few kB of jsonb may be more text than the server can print.
      claim(Task::COLUMNS, room).map { |row| row.merge(texts(row["id"])) }
    end

    def claim(columns, room)
      @popper.query("SELECT #{columns} FROM fairq.pop($1::text[], $2::int, " \
                    "lease => $3::interval, worker => $4::text)",
                    [@queues, room.to_s, seconds(@lease), @name], once: true)
    end

    def texts(id)
      @popper.query("SELECT #{Task::TEXTS} FROM fairq.tasks WHERE id = $1", [id], once: true).first || {}
    rescue *Database::UNPRINTABLE => error
      { "unread" => Database.one_line(error) }
    end

    # Begins no tasks once the worker is stopping.
    def begin_tasks(tasks)
      return unless tasks&.any?
      return release(tasks) if @stop.set?

      suspects, others = tasks.partition(&:suspect?)
      @careful = suspects.any?
      @lock.synchronize { @running.concat(others) }
      others.each { |task| start(task) }
      alone, *rest = suspects
      release(rest) if rest.any?
      run_alone(alone) if alone
    end

    def start(task)
      Thread.new do
        Thread.handle_interrupt(TimedOut => :never) { work(task) }
      end
    end

    # Runs a task alone.  The worker pops nothing until the task has ended.
    def run_alone(task)
      @lock.synchronize do
        @running << task
        wait_to_run_alone(task)
        @running.delete(task) if @stop.set?
      end
      return release([task]) if @stop.set?

      Fairq.logger.warn("#{task}: its lease has expired #{task.lapses} times: it runs alone")
      start(task)
      @lock.synchronize { @changed.wait(@lock) while !@stop.set? && @running.include?(task) }
    end

    def wait_to_run_alone(task)
      late = now + @lease
      until @stop.set? || @running == [task]
        @changed.wait(@lock, late && [late - now, 0].max)
        next unless late && now >= late

        late = nil
        Fairq.logger.warn("#{task.label}: its lease has expired before, so it waits for all other tasks of the " \
                          "worker; if one hangs, set a timeout")
      end
    end

    def wait_for_tasks
      notice_pooler if @poll.nil? && @popper.pooled?
      return @stop.wait(@poll) if @poll&.positive?

      @popper.wait("CALL fairq.wait($1::text[], $2::interval)", [@queues, seconds(SLEEP)], SLEEP)
    rescue PG::QueryCanceled
      nil # cancelled by the worker's end, or a statement_timeout
    rescue PG::Error => error
      survive(error) # even if the next pop succeeds, the next wait may fail
    end

    def notice_pooler
      Fairq.logger.warn("the connection goes through a pooler, so the worker looks for tasks " \
                        "every second; --poll sets another interval, and --poll 0 waits")
      @poll = 1
    end

    # ---- running jobs

    def work(task)
      Fairq.current_task = task
      outcome = perform(task)
    ensure # runs even if the job has killed this thread
      task.claim_end ? conclude(task, outcome) : take_slot_back(task)
    end

    # Ends an attempt.  Without an outcome the lease expires, and the task runs
    # again.
    def conclude(task, outcome)
      how, error, options = outcome || [:lost]
      Hooks.ended(task, how, error, **(options || {}))
      finish(task, *outcome) if outcome
    rescue PG::Error, Error => error
      # in this case, too, the lease expires and the task runs again
      Fairq.logger.error("#{task}: #{Database.one_line(error)}")
    ensure
      @lock.synchronize do
        @running.delete(task)
        @changed.broadcast
      end
    end

    # The outcome of the attempt.
    def perform(task)
      task.begun = now
      Hooks.call(:before, task)
      run_job(task)
      [:complete]
    rescue Dead => error
      [:fail, error, { dead: true }]
    rescue Retry => error
      [:fail, error, { wait: error.wait }]
    rescue Exception => error # ScriptError and SystemExit also fail the task
      stopped = task.stopped? && !task.timed_out? && error.is_a?(Stopped)
      # fairq.fail has no effect on a cancelled or lost task; after max_run_time
      # it fails the attempt
      [:fail, error, { quiet: stopped }]
    ensure
      task.ended ||= now
    end

    def run_job(task)
      # Runs the job as Active Job's execute does, so that Rails can reload code
      # before and after the job.
      ActiveJob::Callbacks.run_callbacks(:execute) do
        job = task.load_job
        @timeouts.limit(task, job.fairq_timeout || @timeout) { job.perform_now }
      end
    ensure
      if defined?(ActiveRecord::Base)
        ActiveRecord::Base.connection_handler.clear_active_connections!
      end
    end

    # Fails a task whose thread did not end after its timeout.
    def abandon(task)
      return unless task.claim_end

      task.ended = now
      @lock.synchronize { @stuck += 1 }
      conclude(task, [:fail, TimedOut.new("timed out, and did not stop"), {}])
      Fairq.logger.error("#{task}: its thread does not end: #{slots} of #{@concurrency} slots are left")
      return if slots.positive?

      @refused = Error.new("no slot is left: jobs did not end at their timeout")
      @stop.set
    end

    def take_slot_back(task)
      @lock.synchronize do
        @stuck -= 1
        @changed.broadcast
      end
      Fairq.logger.warn("#{task}: its thread has ended at last: #{slots} of #{@concurrency} slots are left")
    end

    def finish(task, how, error = nil, options = {})
      how == :complete ? complete(task) : fail_task(task, error, **options)
    rescue PG::Error, ServerError => refused
      raise if Database.transient?(refused)

      # For example, the result is not jsonb, or the retry's queue or time is invalid.
      fail_task(task, refused)
    end

    def complete(task)
      if task.replacements.any?
        return if task.batch ? retry_in_batch(task) : replaced?(task)
      elsif task.completed?
        # The job's own transaction has completed the task.  If that transaction was
        # committed, the failure has no effect.
        problem = Error.new("the transaction that completed the task was rolled back")
        return fail_task(task, problem, quiet: true)
      elsif ended?(@keeper.query(Ends::COMPLETE, Ends.complete_values(task), brief: true))
        return Report.attempt(task, "completed")
      end
      Fairq.logger.warn("#{task}: the server refuses to complete it: " \
                        "it had ended before, or its lease was lost and it may run twice")
    end

    def ended?(result)
      result.getvalue(0, 0) == "t"
    end

    def retry_in_batch(task)
      task.save_retries(task.job)
      return release([task]) if task.interrupted?

      report_failure(task, task.retry_error)
      ended?(@keeper.query(Ends::RETRY, Ends.retry_values(task), brief: true))
    end

    def replaced?(task)
      done = @keeper.transaction { |connection| replace(connection, task) }
      task.interrupted? ? Report.attempt(task, "released") : report_failure(task, task.retry_error, last: false) if done
      done
    end

    # Completes the task and enqueues its successor in one transaction.
    def replace(connection, task)
      connection.transaction do
        done = connection.exec_params("#{Ends::COMPLETE} #{@keeper.briefly}", Ends.complete_values(task))
        return false unless ended?(done)

        task.replacements.each do |job, values|
          added = connection.exec_params(Producer::ENQUEUE_ALONE, values)
          job.provider_job_id = added.getvalue(0, 0).to_i
        end
        true
      end
    end

    # quiet: the attempt may already have ended, cancelled or completed
    def fail_task(task, error, dead: false, wait: nil, quiet: false)
      report_failure(task, error, dead: dead) unless quiet
      task.save_rest
      values = Ends.fail_values(task, Report.archived(error), dead: dead, wait: wait)
      failed = ended?(@keeper.query(Ends::FAIL, values, brief: true))
      return unless quiet
      return report_failure(task, error) if failed

      Report.attempt(task, task.completed? ? "completed" : "stopped")
    end

    def report_failure(task, error, dead: false, last: task.attempts_left.zero?)
      Report.attempt(task, dead || last ? "failed" : "retried", error)
    end

    def seconds(value)
      Database.interval(value)
    end

    # ---- renewing leases

    def keep_leases
      loop do
        sleep(@lease / 3.0)
        tasks = @lock.synchronize { @running.dup }
        tasks.any? ? extend_leases(tasks) : @renewed = now
      rescue PG::Error, Error => error
        Fairq.logger.error("leases: #{Database.one_line(error)}")
      end
    end

    def extend_leases(tasks)
      lost = @keeper.query("SELECT unnest(fairq.extend_batch($1::bigint[], $2::int[], $3::interval))",
                           [*ids_and_attempts(tasks), seconds(@lease)])
      @renewed = now
      # The worker may have two attempts of a task.  The older attempt has lost its lease.
      lost.column_values(0).map(&:to_i).tally.each do |id, number|
        tasks.select { |task| task.id == id }.min_by(number, &:attempt).each(&:stop!)
      end
    end

    def ids_and_attempts(tasks)
      [tasks.map(&:id), tasks.map(&:attempt)].map { |list| "{#{list.join(",")}}" }
    end

    # ---- schedules

    def keep_schedules
      until @stop.set? || Schedule.all.empty?
        begin
          now = @keeper.query("SELECT extract(epoch FROM clock_timestamp())").getvalue(0, 0).to_r
          pause = Schedule.all.values.map { |schedule| tick(schedule, now) }.min
        rescue PG::Error, Error => error
          Fairq.logger.error("schedules: #{Database.one_line(error)}")
          pause = Schedule::PROBLEM
        end
        @stop.wait(pause.to_f)
      end
    end

    # Enqueues the jobs that are due.  Returns the seconds until the next call.
    def tick(schedule, now)
      schedule.due(now).each do |at|
        @keeper.query(Producer::ENQUEUE_ALONE, schedule.values(at), brief: true)
      end
      schedule.seen(now)
      schedule.next_in(now)
    rescue StandardError => error # this includes errors of the application's block
      Fairq.logger.error("schedule #{schedule.name}: #{Report.with_causes(error)}")
      Schedule::PROBLEM
    end

    # ---- the end

    # Releases tasks, which ends those that are cancelled.
    def release(tasks)
      tasks.each { |task| Report.attempt(task, "released") }
      @keeper.query("SELECT fairq.release_batch($1::bigint[], $2::int[])",
                    ids_and_attempts(tasks), brief: true)
    end

    def popping_ended?(popping, limit)
      # pop_tasks keeps its error in @refused, which run() raises
      !popping.join([limit - now, 0].max).nil?
    end

    def all_ended?
      limit = now + @grace
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any? && now < limit
        @running.empty?
      end
    end

    # Does not release tasks that have ended, since a server that was down must still receive their
    # outcomes.
    def hand_back(limit)
      tasks = @lock.synchronize { @running.reject(&:ended) }
      tasks.each { |task| Hooks.ended(task, :lost) if task.begun }
      release_until(limit, tasks) if tasks.any?
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any?(&:ended) && now < limit
      end
    end

    # Releases the tasks concurrently, since one of the rows may be locked.
    def release_until(limit, tasks)
      releasing = tasks.map do |task|
        Thread.new do
          task.save_rest
          release([task])
        rescue PG::Error, Error => error
          Fairq.logger.error("release: #{Database.one_line(error)}")
        end
      end
      releasing.each { |thread| thread.join([limit - now, 0].max) }
    end
  end
end
