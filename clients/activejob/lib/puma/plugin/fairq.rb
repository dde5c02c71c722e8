# frozen_string_literal: true

require "puma/plugin"
require "rbconfig"

module Puma
  class DSL
    # The arguments of fairq-worker.
    def fairq_worker(*arguments)
      @options[:fairq_worker] = arguments
    end
  end
end

module Fairq
  # A process of fairq-worker that lives as long as Puma.
  #
  # The process ends at SIGTERM, and when its standard input ends, as it does if
  # Puma is killed. If the process ends by itself, for example because a queue
  # is missing, Puma starts it again.
  class PumaWorker
    PROGRAM = File.expand_path("../../../bin/fairq-worker", __dir__)
    PAUSE = 5 # seconds until the next start

    # The block gets a line when the process has ended by itself.
    def initialize(arguments, &log)
      @command = [RbConfig.ruby, PROGRAM, "--until-eof", *arguments]
      @log = log
      @lock = Mutex.new
      @changed = ConditionVariable.new
    end

    def start
      @stopping = false
      reader, @writer = IO.pipe
      @keeper = Thread.new { keep(reader) }
    end

    # Stops the process and waits for its end, which the worker's grace may
    # delay.
    def stop
      @lock.synchronize do
        @stopping = true
        Process.kill(:TERM, @pid) if @pid
        @changed.broadcast
      end
      # other processes of Puma may have copies of the pipe, so SIGTERM is
      # needed, too
      @writer.close
      @keeper.join
    end

    private

    def keep(reader)
      while (process = spawn(reader))
        status = process.value
        @lock.synchronize do
          @pid = nil
          next if @stopping

          @log.call("fairq-worker has ended (#{status}), and starts again in #{PAUSE} seconds")
          @changed.wait(@lock, PAUSE)
        end
      end
      reader.close
    end

    # The thread that waits for a new process; nil: there is none, since Puma ends.
    def spawn(reader)
      @lock.synchronize do
        until @stopping
          begin
            @pid = Process.spawn(*@command, in: reader)
            return Process.detach(@pid)
          rescue SystemCallError => error # the system may lack memory for a new process
            @log.call("fairq-worker cannot start: #{error.message}; the next try is in #{PAUSE} seconds")
            @changed.wait(@lock, PAUSE)
          end
        end
      end
    end
  end
end

Puma::Plugin.create do
  def start(launcher)
    arguments = launcher.options[:fairq_worker]
    raise ArgumentError, "fairq_worker in config/puma.rb must name the queues" if arguments.nil? || arguments.empty?

    events = launcher.events
    log = launcher.respond_to?(:log_writer) ? launcher.log_writer : events # before Puma 6
    worker = Fairq::PumaWorker.new(arguments) { |line| log.log(line) }
    if Gem::Version.new(Puma::Const::VERSION) < Gem::Version.new("7")
      events.on_booted { worker.start }
      events.on_restart { worker.stop }
      events.on_stopped { worker.stop }
    else
      events.after_booted { worker.start }
      events.before_restart { worker.stop }
      events.after_stopped { worker.stop }
    end
  end
end
