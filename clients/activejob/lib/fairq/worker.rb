# frozen_string_literal: true

require "socket"

require "fairq"
require "fairq/session"
require "fairq/task"

module Fairq
  # Does the jobs of some queues, strictly in the order given, each in a thread.
  #
  # One thread pops, and sleeps in fairq.wait; one keeps leases; run() waits for the
  # end.  They share @running, under @lock; @changed is told of each change.
  #
  # poll: look for tasks so often, in seconds, instead of sleeping in fairq.wait; 0:
  # sleep there; nil: sleep, but through a pooler look every second.
  class Worker
    SECONDS_MORE = 4 # for a server that is down, or does not answer, at the end

    attr_reader :concurrency, :lease, :grace

    def initialize(queues, concurrency: 4, lease: 60, grace: 5, poll: nil, name: nil)
      @queues = PG::TextEncoder::Array.new.encode(queues)
      @concurrency = concurrency
      @lease = lease
      @grace = grace
      @name = name || "#{Socket.gethostname}:#{Process.pid}"
      @stop = Stop.new
      @popper = Session.new(@stop) # fairq.wait takes its time
      @over = Stop.new
      @keeper = Session.new(@over) # to tell what has ended, to the end
      @running = []
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @poll = poll
    end

    # Has run() end; may be called in a signal handler.
    def stop
      @stop.set
    end

    def stopping?
      @stop.set?
    end

    # Works until stop().  Raises what the server refuses.  Returns whether all has
    # ended; what has not was handed back, and its threads live on.
    def run
      popping = Thread.new { pop_tasks }
      popping.report_on_exception = false
      keeping = Thread.new { keep_leases }
      @stop.wait
      limit = now + @grace + SECONDS_MORE
      @lock.synchronize { @changed.broadcast }
      ended = popping_ended?(popping, limit) && all_ended?
      hand_back(limit) unless ended
      popping.join if ended # raises what has ended it
      raise @refused if @refused

      ended
    ensure
      @stop.set
      @over.set
      keeping&.kill
    end

    # What a function of fairq says for an attempt, as text; nil is NULL, or false.
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

        tasks = pop(room)
        begin_tasks(tasks)
        wait_for_tasks if tasks&.empty?
      end
    rescue StandardError => error
      @refused = error
    ensure
      @stop.set
    end

    def wait_for_room
      @lock.synchronize do
        @changed.wait(@lock) until @stop.set? || @running.size < @concurrency
        @concurrency - @running.size
      end
    end

    # nil: the connection is lost
    def pop(room)
      rows = @popper.query("SELECT #{Task::COLUMNS} FROM fairq.pop($1::text[], $2::int, " \
                           "lease => $3::interval, worker => $4::text)",
                           [@queues, room.to_s, seconds(@lease), @name], once: true)
      rows.map { |row| Task.new(self, row) }
    rescue PG::QueryCanceled # by a statement_timeout
      []
    rescue PG::Error => error
      raise unless Database.transient?(error)

      @stop.wait(1)
      nil
    end

    # What comes after the end has begun is not begun.
    def begin_tasks(tasks)
      return unless tasks&.any?
      return release(tasks) if @stop.set?

      @lock.synchronize { @running.concat(tasks) }
      tasks.each do |task|
        Thread.new { work(task) }
      end
    end

    def wait_for_tasks
      notice_pooler if @poll.nil? && @popper.pooled?
      return @stop.wait(@poll) if @poll&.positive?

      @popper.wait("CALL fairq.wait($1::text[])", [@queues])
    rescue PG::QueryCanceled
      nil # by the end, or by a statement_timeout
    rescue PG::Error => error
      raise unless Database.transient?(error)
    end

    def notice_pooler
      Fairq.logger.warn("the connection goes through a pooler, of which fairq.wait would occupy " \
                        "one: looking for tasks every second instead")
      @poll = 1
    end

    # ---- doing them

    def work(task)
      Fairq.current_task = task
      finish(task, *perform(task))
    rescue PG::Error, Error => error
      # its lease ends, and it is done again
      Fairq.logger.error("#{task}: #{Database.one_line(error)}")
    ensure
      @lock.synchronize do
        @running.delete(task)
        @changed.broadcast
      end
    end

    # How the attempt is to end.
    def perform(task)
      task.begun = now
      run_job(task)
      [:complete]
    rescue Dead => error
      [:fail, error, { dead: true }]
    rescue Retry => error
      [:fail, error, { wait: error.wait }]
    rescue Exception => error # also of scripts and of the system: the task is told
      task.stopped? && error.is_a?(Stopped) ? [:release] : [:fail, error, {}]
    ensure
      task.ended = now
    end

    def run_job(task)
      # What Active Job's execute does: Rails reloads code around it.
      ActiveJob::Callbacks.run_callbacks(:execute) do
        job_class = Envelope.job_class(task.name)
        task.job = job_class.deserialize(Envelope.unpack(task, job_class))
        task.job.perform_now
      end
    ensure
      if defined?(ActiveRecord::Base)
        ActiveRecord::Base.connection_handler.clear_active_connections!
      end
    end

    def finish(task, how, error = nil, options = {})
      case how
      when :complete then complete(task)
      when :fail then fail_task(task, error, **options)
      when :release then release([task])
      end
    rescue PG::Error, ServerError => refused
      raise if Database.transient?(refused)
      raise if how == :release

      # the result, say, is no jsonb, there is no queue of the name for the retry, or it
      # is to be at a time that cannot be
      fail_task(task, refused)
    end

    def complete(task)
      if task.replacements.any?
        done = @keeper.transaction { |connection| replace(connection, task) }
        return if done
      elsif task.completed?
        # By the job's own transaction: only if that was rolled back does it still run.
        problem = Error.new("the transaction that completed the task was rolled back")
        return fail_task(task, problem, quiet: true)
      elsif ended?(@keeper.query(COMPLETE, complete_values(task), brief: true))
        return
      end
      Fairq.logger.warn("#{task}: had ended before, or its lease was lost")
    end

    COMPLETE = "SELECT fairq.complete($1::bigint, $2::int, $3::jsonb, took => $4::interval)"

    def complete_values(task)
      [task.id.to_s, task.attempt.to_s, task.result_json, task.took]
    end

    def ended?(result)
      result.getvalue(0, 0) == "t"
    end

    # Completes the task and enqueues what comes in its place: both or none.
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

    # quiet: says nothing if the attempt has ended before
    def fail_task(task, error, dead: false, wait: nil, quiet: false)
      text = clean("#{error.class}: ", error.message)
      failed = tell_failed(task, text, dead: dead, wait: wait)
      return if quiet && !failed

      Fairq.logger.add(error.is_a?(Retry) ? Logger::INFO : Logger::ERROR,
                       "#{task} (#{task.name}): #{text.lines.first.chomp}")
    end

    def tell_failed(task, text, dead: false, wait: nil)
      ended?(@keeper.query(
               "SELECT fairq.fail($1::bigint, $2::int, $3::text, retry_in => $4::interval, " \
               "dead => $5::boolean, took => $6::interval)",
               [task.id.to_s, task.attempt.to_s, text, wait && seconds(wait), dead.to_s,
                task.took], brief: true
             ))
    end

    # What the server takes for text; of a message without end its beginning.
    def clean(before, text)
      text = text.to_s
      text = text.dup.force_encoding(Encoding::UTF_8) if text.encoding == Encoding::BINARY
      text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
      "#{before}#{text.delete("\0")[0, 10_000]}"
    end

    def seconds(value)
      Database.interval(value)
    end

    # ---- keeping leases

    def keep_leases
      loop do
        sleep(@lease / 3.0)
        tasks = @lock.synchronize { @running.dup }
        extend_leases(tasks) if tasks.any?
      rescue PG::Error, Error => error
        Fairq.logger.error("leases: #{Database.one_line(error)}")
      end
    end

    def extend_leases(tasks)
      lost = @keeper.query("SELECT unnest(fairq.extend_batch($1::bigint[], $2::int[], $3::interval))",
                           [*ids_and_attempts(tasks), seconds(@lease)])
      # A task may be here twice: lost, and taken again.  The older attempt is lost.
      lost.column_values(0).map(&:to_i).tally.each do |id, number|
        tasks.select { |task| task.id == id }.min_by(number, &:attempt).each(&:stop!)
      end
    end

    def ids_and_attempts(tasks)
      [tasks.map(&:id), tasks.map(&:attempt)].map { |list| "{#{list.join(",")}}" }
    end

    # ---- the end

    # Hands tasks back; ends those that are cancelled; nothing if they are lost.
    def release(tasks)
      @keeper.query("SELECT fairq.release_batch($1::bigint[], $2::int[])",
                    ids_and_attempts(tasks), brief: true)
    end

    def popping_ended?(popping, limit)
      # its error is raised by run()
      !popping.join([limit - now, 0].max).nil?
    end

    def all_ended?
      limit = now + @grace
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any? && now < limit
        @running.empty?
      end
    end

    # What has ended is not handed back: a server that was away is to hear of it.
    def hand_back(limit)
      tasks = @lock.synchronize { @running.reject(&:ended) }
      release_until(limit, tasks) if tasks.any?
      @lock.synchronize do
        @changed.wait(@lock, limit - now) while @running.any?(&:ended) && now < limit
      end
    end

    # Side by side, as the row of one may be held.
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
