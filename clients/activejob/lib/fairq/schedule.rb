# frozen_string_literal: true

module Fairq
  # A schedule adds a job at regular times.
  #
  #     Fairq.schedule("report", cron: "30 8 * * mon-fri Europe/Berlin") { ReportJob.new("daily") }
  #
  # Each worker enqueues the job at each time, by the server's clock.  The dedup_key contains the
  # schedule's name and the time, so fairq adds one task for each time.  dedup_for keeps the key
  # until no worker enqueues a job for that time any more.
  class Schedule
    LOOK = 60 # longest time in seconds between reads of the server's clock
    MARGIN = 300 # seconds for which a key stays taken in addition to catch_up
    PROBLEM = 5 # seconds until a retry after the server has refused a task

    @all = {}

    class << self
      # {name => schedule}
      attr_reader :all
    end

    attr_reader :name

    def initialize(name, every: nil, cron: nil, catch_up: 3600, **options, &job)
      raise ArgumentError, "the schedule #{name} needs a block that returns a job" unless job
      raise ArgumentError, "give either every or cron to the schedule #{name}" if every.nil? == cron.nil?

      @name = name.to_s
      @next = every ? multiples(every) : cron_line(cron)
      @catch_up = catch_up.to_r
      check_options(options)
      @options = options
      @job = job
    end

    # The times from the last call of seen until now.  Before such a call, returns only the
    # last missed time.  Times are seconds since 1970.
    def due(now)
      after = [now - @catch_up, @seen || 0].max
      times = []
      while (after = @next.call(after)) <= now
        times << after
      end
      @seen ? times : times.last(1)
    end

    # Records that all times up to this one have their tasks.
    def seen(now)
      @seen = now
    end

    # Seconds until the next time, at most LOOK.
    def next_in(now)
      [@next.call(now) - now, LOOK].min
    end

    # The values of Producer::ENQUEUE for a time.
    def values(at)
      text = text_of(at)
      job = @job.call
      job = job.new if job.is_a?(Class)
      job.queue_name = @options[:queue].to_s if @options[:queue]
      job.priority = @options[:priority] if @options[:priority]
      job.fairq_options["group"] = @options[:group] if @options[:group]
      headers = job.fairq_options["headers"].to_h.stringify_keys
      job.fairq_options["headers"] = { **headers, "schedule" => @name, "scheduled_at" => text }
      # The job's options do not have these values, because its retries would
      # keep them.
      Producer.values(job).tap do |values|
        values[Producer::DEDUP_KEY] = "schedule #{@name} #{text}"
        values[Producer::DEDUP_FOR] = Database.interval(@catch_up + MARGIN)
      end
    end

    private

    def check_options(options)
      unknown = options.keys - %i[queue group priority]
      raise ArgumentError, "the schedule #{@name} has no option #{unknown.first.inspect}" if unknown.any?
    end

    # The multiples of an interval since 1970 in UTC.
    def multiples(every)
      every = every.to_r
      raise ArgumentError, "the interval of the schedule #{@name} is below a second" if every < 1

      ->(after) { ((after / every).floor + 1) * every }
    end

    # The times of a cron line, which may end with a time zone.  The default is UTC.
    def cron_line(line)
      require "fugit"
      cron = Fugit.parse_cron(line) || raise(ArgumentError, "#{line.inspect} is not a cron line")
      cron = Fugit.parse_cron("#{cron.to_cron_s} UTC") unless cron.zone
      ->(after) { cron.next_time(Time.at(after).utc).to_i.to_r }
    end

    def text_of(at)
      time = Time.at(at).utc
      # other clients use the same formats
      time.strftime(time.usec.zero? ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%dT%H:%M:%S.%6N+00:00")
    end
  end
end
