# frozen_string_literal: true

require "securerandom"
require "socket"

module Fairq
  # A worker's row in the view fairq.workers, and its file for a probe.
  class Presence
    EVERY = 10 # seconds between calls that register the worker
    TOUCH = 1 # seconds between writes of the file
    PARTING = 1 # seconds for the server to answer when the worker ends

    REGISTER = "SELECT fairq.register_worker($1::uuid, $2::text, $3::text[], host => $4::text, " \
               "client => 'activejob', version => $5::text, concurrency => $6::int, running => $7::int)"
    UNREGISTER = "SELECT fairq.unregister_worker($1::uuid)"

    # The block returns the number of running tasks.
    def initialize(session, name, queues, concurrency, &running)
      @session = session
      @name = name
      @row = [SecureRandom.uuid, name, queues, Socket.gethostname, VERSION, concurrency.to_s]
      @running = running
      @left = Stop.new
    end

    # Registers the worker every ten seconds from now on.  If a call fails, the worker
    # continues.  The log gets the first failure that is not temporary.
    def register
      @registering ||= Thread.new do
        until @left.set?
          ask(REGISTER, [*@row, @running.call.to_s])
          @left.wait(EVERY)
        end
        ask(UNREGISTER, @row.first(1))
      end
    end

    # Writes the file every second from now on.
    def write(file)
      Thread.new do
        until @left.set?
          File.write(file, "#{@name}\n")
          @left.wait(TOUCH)
        end
      rescue SystemCallError => error
        Fairq.logger.error("the file of --alive: #{error.message}")
      end
    end

    # Removes the worker's row.
    def leave
      @left.set
      @registering&.join(PARTING)
    end

    private

    def ask(sql, values)
      @session.query(sql, values, once: true, brief: true)
    rescue PG::Error, Error => error
      return if @told || Database.transient?(error)

      Fairq.logger.warn("the worker is not in fairq.workers: #{Database.one_line(error)}")
      @told = true
    end
  end
end
