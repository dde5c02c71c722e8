# frozen_string_literal: true

require "active_support/fork_tracker"

module Fairq
  # A connection of the client.  The end of a process that a job has forked must not close its
  # parent's connections.  So the child closes its copies of their sockets, including those of
  # connections that another thread was opening.
  class ServerConnection < PG::Connection
    ActiveSupport::ForkTracker.after_fork do
      ObjectSpace.each_object(ServerConnection) do |connection|
        connection.socket_io.reopen(IO::NULL) unless connection.finished?
      rescue PG::Error
        nil # the connection has no socket yet
      end
    end
  end

  # Connections, and the meaning of their errors.
  module Database
    # Errors that time or a new connection may fix.  25006, read-only: the
    # server was the primary, or the database is being moved.  40: the
    # transaction was in conflict with another one.
    LOST = /\A(08|25006|40|53|57P|58)/.freeze
    # The server cannot print a text, because of its limits or its memory.
    UNPRINTABLE = [PG::ProgramLimitExceeded, PG::OutOfMemory].freeze
    # Errors that only a change of the database or of the call fixes.
    REFUSED = /\A(QF|42501|42883|3F000)/.freeze

    # Errors of a server that is starting, is stopping, or has no free connection.  libpq has no
    # SQLSTATE for an error while it connects.
    AWAY = /the database system is|too many (clients|connections)|connection slots|terminating connection/i.freeze

    module_function

    def connect
      options = { **defaults, **given }
      hosts = list(options[:host] || ENV["PGHOST"])
      return ServerConnection.new(options) if hosts.length < 2

      ports = list(options[:port] || ENV["PGPORT"])
      each_host(hosts, ports) { |at| ServerConnection.new({ **options, **at }) }
    end

    def list(text)
      text.to_s.split(",")
    end

    # A connection to the first host that accepts one.  Tries each host with a time limit of its
    # own, since a host that does not answer would use up a common limit.
    def each_host(hosts, ports)
      problem = nil
      hosts.each_with_index do |host, i|
        return yield({ host: host, port: ports.empty? ? nil : ports[i % ports.length] }.compact)
      rescue PG::ConnectionBad => error
        problem = error
      end
      raise problem
    end

    # Whether the server refuses the connection for a lasting reason: the database or role
    # does not exist, the password is wrong, or pg_hba.conf forbids it.
    def refused?(error)
      error.is_a?(PG::ConnectionBad) && sqlstate(error).nil? &&
        error.message.include?("FATAL:") && !AWAY.match?(error.message)
    end

    # Whether the error is due to the connection or to a temporary state, and
    # not to the statement.
    def lost?(error)
      state = sqlstate(error)
      state ? LOST.match?(state) : error.is_a?(PG::Error)
    end

    # Whether another transaction has a lock that the statement needs, or the statement was
    # cancelled, for example by a statement_timeout.
    def held?(error)
      %w[55P03 57014].include?(sqlstate(error))
    end

    # Whether time or a new connection may fix the error.
    def transient?(error)
      lost?(error) || held?(error)
    end

    # Whether a later pop or fairq.wait may succeed.  XX: an internal error of the server.
    def passing?(error)
      transient?(error) || /\A(25|XX)/.match?(sqlstate(error))
    end

    def sqlstate(error)
      error.result&.error_field(PG::PG_DIAG_SQLSTATE) if error.respond_to?(:result)
    end

    # The error as a ServerError if it comes from the server, or else unchanged.
    def explained(error)
      state = sqlstate(error)
      return error unless state && REFUSED.match?(state)

      ServerError.new(explanation(error, state), state)
    end

    def explanation(error, state)
      said = error.result.error_field(PG::PG_DIAG_MESSAGE_PRIMARY)
      case state
      when "3F000"
        "the database has no fairq (#{said}): run CREATE EXTENSION fairq"
      when "42883"
        "the database's fairq is of another version (#{said})"
      when "QF001"
        "#{said}: create it with fairq.create_queue"
      else
        said
      end
    end

    def interval(seconds)
      format("%.6f seconds", seconds.to_f)
    end

    def one_line(error)
      error.message.to_s.strip.gsub(/\s*\n\s*/, "; ")
    end

    # The class of Active Record whose connection enqueues jobs. nil: there is none, or its database
    # is not PostgreSQL.
    def record
      return if Fairq.database_url || !defined?(ActiveRecord::Base)

      record = Fairq.record_class.constantize
      record if record.connection_db_config.adapter.match?(/postg/)
    rescue ActiveRecord::ConnectionNotEstablished
      nil
    end

    def given
      if Fairq.database_url
        parsed = PG::Connection.conninfo_parse(Fairq.database_url)
        parsed.to_h { |option| [option[:keyword].to_sym, option[:val]] }.compact
      elsif (record = self.record)
        record_options(record.connection_db_config.configuration_hash)
      else
        {}
      end
    end

    # Active Record's settings from database.yml.
    def record_options(config)
      options = config.to_h.symbolize_keys.compact
      options[:user] = options.delete(:username) if options[:username]
      options[:dbname] = options.delete(:database) if options[:database]
      options.slice(*PG::Connection.conndefaults_hash.keys)
    end

    # Keepalives detect within half a minute that a host has vanished while the connection is idle;
    # tcp_user_timeout detects it while sent data is unacknowledged.
    def defaults
      options = { fallback_application_name: "fairq", client_encoding: "UTF8",
                  keepalives_idle: 10, keepalives_interval: 5, keepalives_count: 4,
                  tcp_user_timeout: 30_000 }
      options[:connect_timeout] = 10 unless ENV["PGCONNECT_TIMEOUT"]
      options
    end
  end
end
