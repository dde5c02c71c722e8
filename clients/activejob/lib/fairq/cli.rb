# frozen_string_literal: true

require "optparse"

require "fairq/worker"

module Fairq
  # The command fairq-worker.
  class CLI
    USAGE = "usage: fairq-worker [options] QUEUE..."

    # An error in the command line.
    class Usage < Error; end

    def self.run(arguments)
      new(arguments).run
    rescue Usage, OptionParser::ParseError => error
      leave("#{error.message}\n#{USAGE}", 2)
    end

    # Runs a worker until SIGTERM or SIGINT, and ends the process.
    def self.serve(worker)
      $stdout.sync = true # the lines of jobs appear at once, also in a file
      signals = %w[TERM INT]
      signals.each { |signal| trap(signal) { worker.stop } }
      # the end of a process that a job has forked must not end this process
      ActiveSupport::ForkTracker.after_fork { signals.each { |signal| trap(signal, "DEFAULT") } }
      ended = worker.run
      # jobs whose tasks were released may still run, and must end with the
      # process
      @cut_off = !ended
      exit
    rescue Error, PG::Error => error
      leave(Database.one_line(error), 1)
    end

    # Runs after the application's own at_exit blocks, since it was registered before them.
    # Without this block, Ruby would then wait for threads that do not end.
    at_exit { exit!(0) if @cut_off }

    def self.leave(message, status)
      $stdout.flush
      $stderr.puts("#{File.basename($PROGRAM_NAME)}: #{message}")
      exit!(status)
    end

    def initialize(arguments)
      @settings = { concurrency: number("CONCURRENCY", 4), lease: number("LEASE", 60),
                    grace: number("GRACE", 5), timeout: number("TIMEOUT", nil),
                    give_up: number("GIVE_UP", 60.0) }
      @queues = options.parse(arguments)
    end

    def run
      raise Usage, "no queue is named" if @queues.empty?

      check_settings
      load_application
      worker = Worker.new(@queues, **@settings)
      if @until_eof
        Thread.new do
          $stdin.read
          worker.stop
        end
      end
      self.class.serve(worker)
    end

    private

    def options
      OptionParser.new(USAGE) do |options|
        options.version = VERSION
        options.on("-r", "--require FILE", "file that loads the application and its jobs",
                   "(config/environment.rb, if it exists)") { |file| @application = file }
        options.on("-c", "--concurrency N", Integer, "number of jobs at a time (4)") { |n| @settings[:concurrency] = n }
        options.on("-l", "--lease SECONDS", Float, "after which other workers run a dead worker's jobs (60)") do |n|
          @settings[:lease] = n
        end
        options.on("-g", "--grace SECONDS", Float, "that running jobs have at the end (5)") do |n|
          @settings[:grace] = n
        end
        options.on("-t", "--timeout SECONDS", Float, "that a job may run (no limit)") do |n|
          @settings[:timeout] = n
        end
        options.on("--give-up SECONDS", Float, "after which the worker ends if the server refuses",
                   "connections (60; 0: never)") { |n| @settings[:give_up] = n }
        options.on("--alive FILE", "that the worker writes every second") { |file| @settings[:alive] = file }
        options.on("--log LEVEL", %w[debug info warn error], "of the lines on stderr (warn)") do |level|
          Fairq.logger.level = level
        end
        options.on("--until-eof", "end when standard input does") { @until_eof = true }
        options.on("-p", "--poll SECONDS", Float, "between polls, instead of fairq.wait",
                   "(1 through a pooler; 0: use fairq.wait)") { |n| @settings[:poll] = n }
      end
    end

    def number(name, default)
      text = ENV[name].to_s
      return default if text.empty?

      default.is_a?(Integer) && text.match?(/\A\d+\z/) ? text.to_i : Float(text)
    rescue ArgumentError
      raise Usage, "#{name} must be a number, not #{text.inspect}"
    end

    def check_settings
      concurrency, lease, grace = @settings.values_at(:concurrency, :lease, :grace)
      unless concurrency.is_a?(Integer) && concurrency.positive?
        raise Usage, "concurrency must be a whole number above 0, not #{concurrency}"
      end
      raise Usage, "lease must be above 0" unless lease.positive?
      raise Usage, "grace must not be below 0" if grace.negative?
      raise Usage, "timeout must be above 0" unless @settings[:timeout].nil? || @settings[:timeout].positive?
      raise Usage, "give-up must not be below 0" if @settings[:give_up].negative?

      @settings[:give_up] = nil if @settings[:give_up].zero?
      raise Usage, "poll must not be below 0" if @settings[:poll]&.negative?
    end

    def load_application
      file = @application || "config/environment.rb"
      path = File.expand_path(file)
      found = [path, "#{path}.rb"].find { |candidate| File.file?(candidate) }
      raise Usage, "there is no #{file}: name the application's file with --require" unless found

      require found
      # loads all classes, so that the worker knows those with a fairq_task
      Rails.application.eager_load! if defined?(Rails.application) && Rails.application
    end
  end
end
