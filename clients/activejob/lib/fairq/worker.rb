# frozen_string_literal: true

require "socket"

require "fairq"
require "fairq/session"
require "fairq/task"
require "fairq/timeouts"

module Fairq
  # Runs the jobs of queues, strictly in the given order of queues, each in a thread.
  #
  # One thread pops and sleeps in fairq.wait, and another one renews leases.  run() waits
  # for the end.  They share @running, under @lock; @changed is signalled at each change.
  #
  # poll: seconds between looks for tasks.  nil: sleep in fairq.wait; through a pooler, 1.
  # 0: sleep in fairq.wait, also through a pooler.
  #
  # timeout: seconds that a job may run, unless its class has fairq_timeout; nil: no limit.
  # A job that does not end then has failed, and keeps its slot.
  #
  # give_up: seconds for which to retry if the server refuses the connection for a lasting
  # reason; nil: forever.
  #
  # A task whose lease has expired before may have killed its process: it runs alone.
  class Worker
    SECONDS_MORE = 4 # for a server that is down, or does not answer, at the end
    SLEEP = 30 # seconds in fairq.wait: a vanished server is detected soon after

    attr_reader :concurrency, :lease, :grace

    def initialize(queues, concurrency: 4, lease: 60, grace: 5, poll: nil, name: nil,
                   timeout: nil, give_up: 60)
      @queues = PG::TextEncoder::Array.new.encode(queues)
      @concurrency = concurrency
      @lease = lease
      @grace = grace
      @timeout = timeout
      @name = name || "#{Socket.gethostname}:#{Process.pid}"
      @stop = Stop.new
      @popper = Session.new(@stop, give_up: give_up) # for pop and fairq.wait
      @over = Stop.new
      # for ends of tasks until the end; it renews the leases, so its limit is below the
      # lease
      @keeper = Session.new(@over, limit: (lease / 3.0).clamp(2, Connection::LIMIT))
      @running = []
      @stuck = 0 # slots of jobs that did not end after their timeout
      @careful = false
      @renewed = now
      @timeouts = Timeouts.new { |task| abandon(task) }
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @poll = poll
    end

    # Ends run().  A signal handler may call it.
    def stop
      @stop.set
    end

    def stopping?
      @stop.set?
    end

    # Works until stop().  Raises errors of the server.  Returns whether all jobs have
    # ended; tasks of the others were released, and their threads continue.
    def run
      popping = Thread.new { pop_tasks }
      popping.report_on_exception = false
      keeping = Thread.new { keep_leases }
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
      @over.set
      keeping&.kill
    end

    # The result of a function of fairq for an attempt, as text; nil is NULL, or false.
    def call(task, function, value = nil, cast: nil)
      sql = "SELECT fairq.#{function}($1::bigint, $2::int#{", $3::#{cast}" if cast})"
      said = @keeper.query(sql, [task.id.to_s, task.attempt.to_s, *(value if cast)], brief: true).getvalue(0, 0)
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

    # How many tasks to pop.  After a task that has to run alone there may be more of its
    # kind, which the worker would only release.  So it then pops one at a time.
    def wait_for_room
      @lock.synchronize do
        @changed.wait(@lock) until @stop.set? || @running.size < (@careful ? 1 : slots)
        @careful ? 1 : slots - @running.size
      end
    end

    def slots
      @concurrency - @stuck
    end

    # If the server was down, the worker first renews the leases before it pops again.
    # Otherwise a task whose lease has expired could run here twice.
    def renew_overdue
      running = @lock.synchronize { @running.dup }
      extend_leases(running) if running.any? && now - @renewed > @lease * 2 / 3.0
    end

    # nil: the connection is lost
    def pop(room)
      claims(room).map { |row| Task.new(self, row) }
    rescue PG::QueryCanceled # by a statement_timeout
      []
    rescue PG::Error => error
      raise unless Database.transient?(error)

      @stop.wait(1)
      nil
    end

    def claims(room)
      claim("#{Task::COLUMNS}, #{Task::TEXTS}", room)
    rescue PG::ProgramLimitExceeded
      # A few kB of jsonb may be more text than the server can print.
      claim(Task::COLUMNS, room).map { |row| row.merge(texts(row["id"])) }
    end

    def claim(columns, room)
      @popper.query("SELECT #{columns} FROM fairq.pop($1::text[], $2::int, " \
                    "lease => $3::interval, worker => $4::text)",
                    [@queues, room.to_s, seconds(@lease), @name], once: true)
    end

    def texts(id)
      @popper.query("SELECT #{Task::TEXTS} FROM fairq.tasks WHERE id = $1", [id]).first || {}
    rescue PG::ProgramLimitExceeded => error
      { "unread" => Database.one_line(error) }
    end

    # Does not begin tasks after the end has begun.
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

    # The worker pops nothing until the task has ended.
    def run_alone(task)
      @lock.synchronize do
        @running << task
        @changed.wait(@lock) until @stop.set? || @running == [task]
        @running.delete(task) if @stop.set?
      end
      return release([task]) if @stop.set?

      Fairq.logger.warn("#{task}: its lease has expired #{task.lapses} times: it runs alone")
      start(task)
      @lock.synchronize { @changed.wait(@lock) while !@stop.set? && @running.include?(task) }
    end

    def wait_for_tasks
      notice_pooler if @poll.nil? && @popper.pooled?
      return @stop.wait(@poll) if @poll&.positive?

      @popper.wait("CALL fairq.wait($1::text[], $2::interval)", [@queues, seconds(SLEEP)], SLEEP)
    rescue PG::QueryCanceled
      nil # by the end, or a statement_timeout
    rescue PG::Error => error
      raise unless Database.transient?(error)
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
    ensure # also when the job has killed this thread
      task.claim_end ? conclude(task, outcome) : take_slot_back(task)
    end

    # No outcome: the lease expires, and the task runs again.
    def conclude(task, outcome)
      finish(task, *outcome) if outcome
    rescue PG::Error, Error => error
      # the same
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
      run_job(task)
      [:complete]
    rescue Dead => error
      [:fail, error, { dead: true }]
    rescue Retry => error
      [:fail, error, { wait: error.wait }]
    rescue Exception => error # also ScriptError and SystemExit: they fail the task
      stopped = task.stopped? && !task.timed_out? && error.is_a?(Stopped)
      # has no effect on a cancelled or lost task; over max_run_time the attempt counts
      [:fail, error, { quiet: stopped }]
    ensure
      task.ended ||= now
    end

    def run_job(task)
      # Like Active Job's execute: Rails reloads code around it.
      ActiveJob::Callbacks.run_callbacks(:execute) do
        job_class = Envelope.job_class(task.name)
        task.job = job_class.deserialize(Envelope.unpack(task, job_class))
        @timeouts.limit(task, job_class.fairq_timeout || @timeout) { task.job.perform_now }
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
        done = @keeper.transaction { |connection| replace(connection, task) }
        return if done
      elsif task.completed?
        # By the job's own transaction: if that was committed, the task does not run any
        # more.
        problem = Error.new("the transaction that completed the task was rolled back")
        return fail_task(task, problem, quiet: true)
      elsif ended?(@keeper.query(COMPLETE, complete_values(task), brief: true))
        return
      end
      Fairq.logger.warn("#{task}: the server refuses to complete it: " \
                        "it had ended before, or its lease was lost and it may run twice")
    end

    COMPLETE = "SELECT fairq.complete($1::bigint, $2::int, $3::jsonb, took => $4::interval)"

    def complete_values(task)
      [task.id.to_s, task.attempt.to_s, task.result_json, task.took]
    end

    def ended?(result)
      result.getvalue(0, 0) == "t"
    end

    # Completes the task and enqueues its successor, both or none.
    def replace(connection, task)
      connection.transaction do
        done = connection.exec_params("#{COMPLETE} #{@keeper.briefly}", complete_values(task))
        return false unless ended?(done)

        task.replacements.each do |job, values|
          added = connection.exec_params(Producer::ENQUEUE_ALONE, values)
          job.provider_job_id = added.getvalue(0, 0).to_i
        end
        true
      end
    end

    # quiet: no warning if the attempt has ended before
    def fail_task(task, error, dead: false, wait: nil, quiet: false)
      text = with_causes(error)
      failed = tell_failed(task, text, dead: dead, wait: wait)
      return if quiet && !failed

      Fairq.logger.add(error.is_a?(Retry) ? Logger::INFO : Logger::ERROR,
                       "#{task}: #{text.lines.map(&:strip).join("; ")}")
    end

    # The error and its causes, as text that the server accepts.
    def with_causes(error)
      chain = []
      while error && chain.size < 20
        chain << "#{error.class}: #{utf8(error.message.to_s)}"
        # the server's errors are explained already
        error = error.is_a?(ServerError) ? nil : error.cause
      end
      chain.join("\ncaused by ").delete("\0")[0, 10_000]
    end

    def tell_failed(task, text, dead: false, wait: nil)
      ended?(@keeper.query(
               "SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval, " \
               "dead => $5::boolean, took => $6::interval)",
               [task.id.to_s, task.attempt.to_s, text, wait && seconds(wait), dead.to_s,
                task.took], brief: true
             ))
    end

    def utf8(text)
      text = text.dup.force_encoding(Encoding::UTF_8) if text.encoding == Encoding::BINARY
      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
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
      # The worker may have two attempts of a task.  The older one is lost.
      lost.column_values(0).map(&:to_i).tally.each do |id, number|
        tasks.select { |task| task.id == id }.min_by(number, &:attempt).each(&:stop!)
      end
    end

    def ids_and_attempts(tasks)
      [tasks.map(&:id), tasks.map(&:attempt)].map { |list| "{#{list.join(",")}}" }
    end

    # ---- the end

    # Releases tasks, which ends those that are cancelled.
    def release(tasks)
      @keeper.query("SELECT fairq.release_batch($1::bigint[], $2::int[])",
                    ids_and_attempts(tasks), brief: true)
    end

    def popping_ended?(popping, limit)
      # run() raises its error
      !popping.join([limit - now, 0].max).nil?
    end

    def all_ended?
      limit = now + @grace
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any? && now < limit
        @running.empty?
      end
    end

    # Tasks that have ended are not released, since a server that was down must receive
    # that.
    def hand_back(limit)
      tasks = @lock.synchronize { @running.reject(&:ended) }
      release_until(limit, tasks) if tasks.any?
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any?(&:ended) && now < limit
      end
    end

    # Concurrently, since the row of one may be locked.
    def release_until(limit, tasks)
      releasing = tasks.map do |task|
        Thread.new do
          release([task])
        rescue PG::Error, Error => error
          Fairq.logger.error("release: #{Database.one_line(error)}")
        end
      end
      releasing.each { |thread| thread.join([limit - now, 0].max) }
    end
  end
end
