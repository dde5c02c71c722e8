# frozen_string_literal: true

require "active_support/fork_tracker"

module Fairq
  # Enqueues jobs on Active Record's connection, and so in the application's open
  # transaction.  Without Active Record the producer has its own connection.
  module Producer
    # The server adds a job's delay to its own clock, as for leases and retries.
    ENQUEUE = "fairq.enqueue($1::text, $2::text, $3::jsonb, priority => $4::int, " \
              "run_at => coalesce(clock_timestamp() + $5::interval, $6::timestamptz), " \
              "dedup_key => $7::text, max_attempts => $8::int, cost => $9::real, " \
              "headers => $10::jsonb, dedup_until => $11::text, dedup_for => $12::interval, " \
              "replace => $13::boolean, expires_at => $14::timestamptz, batch => $15::bigint, " \
              "after => $16::bigint[], after_any => $17::boolean)"
    ENQUEUE_ALONE = "SELECT #{ENQUEUE}"

    @lock = Mutex.new

    module_function

    # The values of ENQUEUE for a job, all text or nil.
    def values(job, scheduled_at = nil)
      options = job.fairq_options.merge(job.fairq_once)
      group = job.fairq_group
      payload, headers = Envelope.pack(job.serialize)
      wait = job.fairq_wait if scheduled_at
      [job.queue_name.to_s, group, generate(payload), priority(job).to_s, wait && Database.interval(wait),
       scheduled_at && time(scheduled_at), options["dedup_key"]&.to_s,
       options["max_attempts"]&.to_s, options["cost"]&.to_s, generate(headers),
       options["dedup_until"]&.to_s, options["dedup_for"] && Database.interval(options["dedup_for"]),
       options["replace"]&.to_s, options["expires_at"] && time(options["expires_at"]), batch(options["batch"]),
       after(options["after"]), options["after_any"]&.to_s]
    end

    # The ids of one or more jobs, as an array; nil: the job waits for none.
    def after(jobs)
      ids = (jobs.is_a?(Array) ? jobs : [jobs].compact).map { |job| Job.id_of(job).to_s }
      array(ids) if ids.any?
    end

    # The id of the batch of a new task, as text.
    def batch(given)
      given ||= Batch.current
      given && Batch.id_of(given).to_s
    end

    def time(value)
      Time.at(value).round(6).utc.iso8601(6)
    end

    # The id of the new task.
    def enqueue(values)
      ask(ENQUEUE_ALONE, "Fairq Enqueue", values).to_i
    end

    CREATE_BATCH = "SELECT fairq.create_batch($1::text, $2::text, $3::jsonb, priority => $4::int, " \
                   "max_attempts => $5::int, headers => $6::jsonb, batch => $7::bigint, " \
                   "on_success => $8::boolean)"

    # Positions in ENQUEUE of the values that create_batch also takes, and of the other values.
    WAITING = [0, 1, 2, 3, 7, 9, 14].freeze
    NOT_WAITING = { "wait" => 4, "wait_until" => 5, "dedup_key" => 6, "cost" => 8, "dedup_until" => 10,
                    "dedup_for" => 11, "replace" => 12, "expires_at" => 13, "after" => 15, "after_any" => 16 }.freeze

    # Enqueues a job that waits for a batch.  Returns the id of its task, which is also the batch's
    # id.
    def create_batch(values, waits)
      NOT_WAITING.each do |option, number|
        raise ArgumentError, "a job that waits for a batch cannot have #{option}" if values[number]
      end
      ask(CREATE_BATCH, "Fairq Create Batch", [*values.values_at(*WAITING), (waits == "success").to_s]).to_i
    end

    # Options of fairq.enqueue that enqueue_batch does not accept.
    ALONE = %w[dedup_until dedup_for max_attempts replace].freeze

    # The values of EACH are arrays, with an element for each task.
    ENQUEUE_BATCH = "SELECT id FROM fairq.enqueue_batch($1::text, $2::text[], $3::jsonb[], " \
                    "priorities => $4::int[], run_ats => (SELECT array_agg(coalesce(" \
                    "clock_timestamp() + wait, at) ORDER BY n) FROM unnest($5::interval[], " \
                    "$6::timestamptz[]) WITH ORDINALITY AS u (wait, at, n)), " \
                    "dedup_keys => $7::text[], costs => $8::real[], headers => $9::jsonb[], " \
                    "expires_at => $10::timestamptz, batch => $11::bigint, after => $12::bigint[], " \
                    "after_any => $13::boolean) AS id"

    # Positions in ENQUEUE of the values that differ between the tasks of a batch: group,
    # payload, priority, wait, run_at, dedup_key, cost, headers.  Then the positions of the values
    # that all tasks share.
    EACH = [1, 2, 3, 4, 5, 6, 8, 9].freeze
    SHARED = [13, 14, 15, 16].freeze # expires_at, batch, after, after_any
    QUEUE, WAIT, RUN_AT, DEDUP_KEY, COST, DEDUP_FOR = 0, 4, 5, 6, 8, 11

    # Enqueues jobs in one transaction, with as few statements as their options allow.
    def enqueue_all(jobs)
      alone, batched = jobs.partition do |job|
        ALONE.any? { |name| !job.fairq_options.merge(job.fairq_once)[name].nil? }
      end
      in_transaction do
        pairs = batched.map { |job| [job, values(job, job.scheduled_at&.to_f)] }
        # enqueue_batch takes costs for all of its tasks or for none
        pairs.group_by { |_, v| [*v.values_at(QUEUE, *SHARED), v[COST].nil?] }
             .each_value { |call| enqueue_batch(call) }
        alone.each { |job| job.provider_job_id = enqueue(values(job, job.scheduled_at&.to_f)) }
      end
    end

    def enqueue_batch(pairs)
      all = pairs.map(&:last)
      columns = EACH.map { |number| all.map { |values| values[number] } }
                    .map { |column| array(column) if column.any? }
      ids = rows(ENQUEUE_BATCH, "Fairq Enqueue All", [all.first[QUEUE], *columns, *all.first.values_at(*SHARED)])
      pairs.zip(ids) { |(job, _), (id)| job.provider_job_id = id.to_i }
    end

    def array(values)
      PG::TextEncoder::Array.new.encode(values)
    end

    # Runs the block in a transaction of the connection for enqueueing: in the open transaction, if
    # any.
    def in_transaction(&block)
      given = Thread.current.thread_variable_get(:fairq_connection)
      if given
        given.transaction_status == PG::PQTRANS_IDLE ? given.transaction(&block) : yield
      elsif (record = Database.record)
        record.transaction(&block)
      else
        @lock.synchronize { Fairq.with_connection(own_connection) { in_transaction(&block) } }
      end
    end

    # Ends an attempt in the open transaction.  Returns false if the attempt has lost its lease.
    def complete(id, attempt, result)
      sql = "SELECT fairq.complete($1::bigint, $2::int, $3::jsonb)::int"
      ask(sql, "Fairq Complete", [id.to_s, attempt.to_s, result]).to_i == 1
    end

    def ask(sql, name, values)
      rows(sql, name, values).first.first
    end

    def rows(sql, name, values)
      given = Thread.current.thread_variable_get(:fairq_connection)
      if given
        given.exec_params(sql, values).values
      elsif (record = Database.record)
        rows_by_record(record, sql, name, values)
      else
        @lock.synchronize { own_connection.exec_params(sql, values).values }
      end
    rescue PG::Error => error
      raise Database.explained(error)
    end

    def rows_by_record(record, sql, name, values)
      binds = values.map.with_index(1) do |value, number|
        ActiveRecord::Relation::QueryAttribute.new("$#{number}", value, ActiveModel::Type::Value.new)
      end
      record.connection_pool.with_connection do |connection|
        # select_value might use the query cache
        connection.exec_query(sql, name, binds).rows
      end
    rescue ActiveRecord::StatementInvalid => error
      explained = Database.explained(error.cause)
      raise explained.is_a?(ServerError) ? explained : error
    end

    # Reconnects if the connection was lost after the last call.  If the connection is lost during a
    # call, that call fails, since its outcome is unknown.
    def own_connection
      if @connection && !alive?(@connection)
        @connection.close unless @connection.finished?
        @connection = nil
      end
      @connection ||= Database.connect
    end

    def alive?(connection)
      return false if connection.finished? || connection.status != PG::CONNECTION_OK

      # While no query runs, the server sends data only when it ends the connection.
      connection.consume_input while connection.socket_io.wait_readable(0)
      true
    rescue PG::Error, IOError, SystemCallError
      false
    end

    def priority(job)
      value = job.priority || 0
      return value if value.is_a?(Integer) && value.between?(0, 9)

      raise ArgumentError, "the priority of #{job.class.name} must be between 0 (first) and 9, " \
                           "not #{value.inspect}"
    end

    def generate(value)
      JSON.generate(value, max_nesting: 0)
    end

    ActiveSupport::ForkTracker.after_fork { @connection = nil }
  end
end
