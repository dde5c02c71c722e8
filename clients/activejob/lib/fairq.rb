# frozen_string_literal: true

# Active Job on fairq: the queue adapter :fairq, and the interface of jobs and applications.
# The worker is fairq/worker.rb.  See README.md.

require "English"
require "io/wait"
require "json"
require "logger"
require "set"
require "time"

require "active_job"
require "active_job/callbacks" # Active Job loads this only with ActiveJob::Base
require "pg"

require "fairq/version"
require "fairq/errors"
require "fairq/database"
require "fairq/connection"
require "fairq/envelope"
require "fairq/producer"
require "fairq/batch"
require "fairq/job"
require "fairq/handler"
require "fairq/hooks"
require "fairq/manage"
require "fairq/schedule"
require "active_job/queue_adapters/fairq_adapter"

module Fairq
  # The group of tasks that belong to no tenant.  It takes turns like any other group.  Producers
  # refuse an empty string, since it is most likely a missing tenant.
  NO_GROUP = Object.new.freeze

  # Task names that differ from the names of their job classes.
  @tasks = {}

  extend Manage

  class << self
    # A libpq URI or connection string.  nil: Active Record's database, if it is PostgreSQL, or else
    # the database of PGHOST, PGDATABASE and so on.
    attr_accessor :database_url

    # The name of the Active Record class whose connection enqueues jobs.
    attr_accessor :record_class

    # The name of the job class for tasks that have no name.
    attr_accessor :default_job

    # {name of a task => name of its job class}
    attr_reader :tasks

    attr_writer :logger

    # The Worker that this process has started; nil: none.  See Worker#status.
    attr_accessor :worker

    # The group of jobs whose class has no fairq_group.  It is the block's value for the job or,
    # if that is nil, the name of the job's class.
    def group(&block)
      @group = block if block
      @group
    end

    # Adds a block that the worker calls around each attempt: see Hooks.
    def on(hook, &block)
      Hooks.add(hook, block)
    end

    # The block runs tasks of this name, or tasks without a name: see Handler.
    def handle(name = nil, **settings, &block)
      Handler.all[name&.to_s] = Handler.new(name, **settings, &block)
    end

    # Enqueues the block's job at regular times, from each worker: see Schedule.
    def schedule(name, **settings, &job)
      Schedule.all[name.to_s] = Schedule.new(name, **settings, &job)
    end

    # The worker's log.  Jobs log to ActiveJob::Base.logger.
    def logger
      @logger ||= Logger.new($stderr, level: Logger::WARN)
    end

    # The task whose job this thread runs, or nil.
    def current_task
      Thread.current.thread_variable_get(:fairq_task)
    end

    def current_task=(task)
      Thread.current.thread_variable_set(:fairq_task, task)
    end

    # Enqueues the block's jobs on this PG::Connection, in its open transaction.
    def with_connection(connection)
      before = Thread.current.thread_variable_get(:fairq_connection)
      Thread.current.thread_variable_set(:fairq_connection, connection)
      yield
    ensure
      Thread.current.thread_variable_set(:fairq_connection, before)
    end
  end

  self.database_url = ENV["FAIRQ_DATABASE_URL"]
  self.record_class = "ActiveRecord::Base"
end

ActiveSupport.on_load(:active_job) { include Fairq::Job }
