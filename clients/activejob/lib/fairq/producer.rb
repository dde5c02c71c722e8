# frozen_string_literal: true

require "active_support/fork_tracker"

module Fairq
  # Enqueues jobs: by Active Record's connection, and so in the transaction that the
  # application has open; without Active Record, by a connection of its own.
  module Producer
    # A wait is by the server's clock, as leases and retries are.
    ENQUEUE = "fairq.enqueue($1::text, $2::text, $3::jsonb, priority => $4::int, " \
              "run_at => coalesce(clock_timestamp() + $5::interval, $6::timestamptz), " \
              "dedup_key => $7::text, max_attempts => $8::int, cost => $9::real, " \
              "headers => $10::jsonb, dedup_until => $11::text, dedup_for => $12::interval, " \
              "replace => $13::boolean, expires_at => $14::timestamptz)"
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
       options["replace"]&.to_s, options["expires_at"] && time(options["expires_at"])]
    end

    def time(value)
      Time.at(value).round(6).utc.iso8601(6)
    end

    # The id of the new task.
    def enqueue(values)
      ask(ENQUEUE_ALONE, "Fairq Enqueue", values).to_i
    end

    # Ends an attempt in the transaction that is open; false: it is lost.
    def complete(id, attempt, result)
      sql = "SELECT fairq.complete($1::bigint, $2::int, $3::jsonb)::int"
      ask(sql, "Fairq Complete", [id.to_s, attempt.to_s, result]).to_i == 1
    end

    def ask(sql, name, values)
      given = Thread.current.thread_variable_get(:fairq_connection)
      if given
        given.exec_params(sql, values).getvalue(0, 0)
      elsif (record = Database.record)
        ask_by_record(record, sql, name, values)
      else
        @lock.synchronize { own_connection.exec_params(sql, values).getvalue(0, 0) }
      end
    rescue PG::Error => error
      raise Database.explained(error)
    end

    def ask_by_record(record, sql, name, values)
      binds = values.map.with_index(1) do |value, number|
        ActiveRecord::Relation::QueryAttribute.new("$#{number}", value, ActiveModel::Type::Value.new)
      end
      record.connection_pool.with_connection do |connection|
        # not select_value, which the query cache answers
        connection.exec_query(sql, name, binds).rows.first.first
      end
    rescue ActiveRecord::StatementInvalid => error
      explained = Database.explained(error.cause)
      raise explained.is_a?(ServerError) ? explained : error
    end

    # A connection that was lost since the last call is made anew.  One that is lost in
    # the middle of a call is an error of that call: nobody knows if it was committed.
    def own_connection
      if @connection && !alive?(@connection)
        @connection.close unless @connection.finished?
        @connection = nil
      end
      @connection ||= Database.connect
    end

    # In a child process: the connection is its parent's, whom the child must not say
    # goodbye for when it forgets it.
    def discard_connection
      @connection.socket_io.reopen(IO::NULL) unless @connection.nil? || @connection.finished?
      @connection = nil
    end

    def alive?(connection)
      return false if connection.finished? || connection.status != PG::CONNECTION_OK

      # Nothing is to be read while no query is running, but the server's farewell.
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

    ActiveSupport::ForkTracker.after_fork { discard_connection }
  end
end
