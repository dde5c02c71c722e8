# frozen_string_literal: true

module Fairq
  # Finding and changing tasks, and the application's queues, on the connection for
  # enqueueing.  These are methods of Fairq.
  module Manage
    # The SQL types of a queue's settings, the arguments of create_queue.
    SETTINGS = { concurrency: "int", max_running: "int", lease: "interval", max_attempts: "int",
                 backoff: "interval", backoff_max: "interval", retain: "interval", retain_failed: "interval",
                 notify: "boolean", block_length: "bigint", fair_by: "text", rate: "int", per: "interval",
                 burst: "int", max_rate: "int", shares: "int[]", in_order: "boolean",
                 max_run_time: "interval", separator: "text" }.freeze

    # Options of a task, with their SQL types.
    TASK = { priority: "int", wait: "interval", wait_until: "timestamptz", dedup_key: "text",
             max_attempts: "int", cost: "real", headers: "jsonb", expires_at: "timestamptz",
             replace: "boolean", dedup_until: "text", dedup_for: "interval", batch: "bigint",
             after: "bigint[]", after_any: "boolean" }.freeze

    # The SQL names of options that have another name in Ruby.
    NAMES = { group: "group_key", wait: "delay", wait_until: "run_at" }.freeze

    # Changes of a redriven task.
    TARGET = { to_queue: "text", to_priority: "int", to_group: "text" }.freeze
    REDRIVE = { group: "text", max_tasks: "int", **TARGET }.freeze

    # Adds a task that is not a job of Active Job, and returns its id.
    def enqueue(queue, group, payload = {}, task: nil, **options)
      if group.to_s.empty?
        raise ArgumentError, "the group of the task is empty: name one, or use Fairq::NO_GROUP"
      end

      options[:headers] = { **options[:headers].to_h, task: task } if task
      first = [[queue.to_s, "text"], [group == NO_GROUP ? "" : group.to_s, "text"],
               [Producer.generate(payload), "jsonb"]]
      call("enqueue", first, arguments({ batch: Batch.current, **options }, TASK)).to_i
    end

    # Creates missing queues, and gives all queues their settings, in one transaction.  0
    # removes a limit.  A missing setting is not changed.  The separator of an existing
    # queue must be the same, since it cannot be changed.
    def ensure_queues(queues)
      calls = queues.to_h { |name, settings| [name.to_s, arguments(settings.to_h, SETTINGS)] }
      Producer.in_transaction do
        # in this order, so that concurrent calls do not deadlock
        calls.sort.each { |name, given| ensure_queue(name, *given.partition { |one, *| one == "separator" }) }
      end
      nil
    end

    # The id of the unfinished task that has the key; nil: there is none.
    def find(queue, dedup_key)
      call("find", [[queue.to_s, "text"], [dedup_key.to_s, "text"]])&.to_i
    end

    # Cancels a job: at once if it is not running.  Otherwise its task is stopped within a third
    # of the lease.  Returns false if the job is finished or unknown.
    def cancel(job)
      call("cancel", [[Job.id_of(job).to_s, "bigint"]]) == "true"
    end

    # Moves a job that is not running to another time, or to now.  Returns false if the job is
    # running, finished or unknown.  The job is an enqueued job, or the id of its task.
    def reschedule(job, run_at = nil)
      Job.check_time("run_at", run_at)
      at = run_at ? [["run_at", Producer.time(run_at), "timestamptz"]] : []
      call("reschedule", [[Job.id_of(job).to_s, "bigint"]], at) == "true"
    end

    # Enqueues failed tasks of the queue again, the oldest first.  Returns their number.
    def redrive(queue, **options)
      call("redrive", [[queue.to_s, "text"]], arguments(options, REDRIVE)).to_i
    end

    # Enqueues one failed task again.  Returns false if the task has not failed, or another task has
    # its key now.
    def redrive_task(job, **options)
      call("redrive", [[Job.id_of(job).to_s, "bigint"]], arguments(options, TARGET)) == "true"
    end

    private

    def ensure_queue(name, separator, others)
      call("create_queue", [[name, "text"]], [["if_not_exists", "true", "boolean"], *separator])
      call("alter_queue", [[name, "text"]], others)
      (_, wanted), = separator
      return if wanted.nil?

      has = Producer.ask("SELECT separator FROM fairq.queues WHERE queue = $1", "Fairq Separator", [name])
      raise Error, "queue #{name} has the separator #{has.inspect}, which cannot be changed" if has != wanted
    end

    # [name, text, SQL type] of each option that was given.
    def arguments(options, known)
      options.compact.map do |name, value|
        type = known[name.to_sym]
        raise ArgumentError, "there is no option #{name.inspect}, only #{known.keys.join(", ")}" unless type

        [NAMES[name.to_sym] || name.to_s, text(value, type, name), type]
      end
    end

    def text(value, type, name)
      case type
      when "interval" then value.is_a?(String) ? value : Database.interval(value)
      when "int[]" then Producer.array(value.map(&:to_s))
      when "bigint[]" then Producer.after(value)
      when "bigint" then Batch.id_of(value).to_s
      when "jsonb" then Producer.generate(value)
      when "timestamptz"
        Job.check_time(name, value)
        Producer.time(value)
      else value.to_s
      end
    end

    # The result of a function of fairq.  The cast to text prevents a driver of Active Record from
    # decoding it.
    def call(function, first, named = [])
      parts = first.map.with_index(1) { |(_, type), n| "$#{n}::#{type}" }
      parts += named.map.with_index(first.length + 1) { |(name, _, type), n| "#{name} => $#{n}::#{type}" }
      values = first.map(&:first) + named.map { |argument| argument[1] }
      Producer.ask("SELECT fairq.#{function}(#{parts.join(", ")})::text",
                   "Fairq #{function.tr("_", " ").capitalize}", values)
    end
  end
end
