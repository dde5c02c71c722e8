# frozen_string_literal: true

module Fairq
  # The reports of a worker: lines of Fairq.logger, and notifications of Active Support.
  #
  # start.fairq contains the worker's settings and the versions.  attempt.fairq contains the task,
  # outcome, duration in seconds and error of each attempt at its end.
  module Report
    MOST_FRAMES = 20
    # Frames of libraries that call the job.
    OUTER = %r{\A#{Regexp.escape(File.expand_path("..", __dir__))}/|/(activejob|activesupport|activerecord)[^/]*/lib/}.freeze

    module_function

    def start(settings)
      Fairq.logger.info do
        format("fairq %<client>s: worker %<worker>s takes tasks of %<queues>s, %<concurrency>d at a time; " \
               "extension %<extension>s, PostgreSQL %<server>s", **settings, queues: settings[:queues].join(", "))
      end
      notify("start.fairq", settings)
    end

    # outcome: completed, retried, failed, released, or stopped. A stopped task was cancelled, or
    # its lease is lost.
    def attempt(task, outcome, error = nil)
      seconds = task.seconds
      level = { "retried" => Logger::WARN, "failed" => Logger::ERROR }.fetch(outcome, Logger::INFO)
      Fairq.logger.add(level) do
        line = format("%<task>s: %<outcome>s after %<seconds>.3f s", task: task.label, outcome: outcome, seconds: seconds)
        error ? "#{line}: #{with_causes(error).gsub(/\s*\n\s*/, "; ")}" : line
      end
      notify("attempt.fairq", { task: task, outcome: outcome, error: error, duration: seconds })
    end

    # An error of the application's subscriber must not prevent the end of an attempt.
    def notify(name, payload)
      ActiveSupport::Notifications.instrument(name, payload)
    rescue StandardError => error
      Fairq.logger.error("a subscriber of #{name} failed: #{with_causes(error)}")
    end

    # The error and its causes.
    def with_causes(error)
      chain(error).map { |one| text(one) }.join("\ncaused by ")
    end

    # The text for the archive: the error and its causes, and then the frames of each.
    def archived(error)
      first, *causes = chain(error)
      stacks = causes.flat_map { |cause| frames(cause).then { |lines| lines.any? ? [text(cause), *lines] : [] } }
      [with_causes(error), *frames(first), *stacks].join("\n").delete("\0")[0, 10_000]
    end

    def chain(error)
      chain = []
      while error && chain.size < 20
        chain << error
        # the server's errors already have an explanation
        error = error.is_a?(ServerError) ? nil : error.cause
      end
      chain
    end

    def text(error)
      "#{error.class}: #{utf8(error.message.to_s)}"
    rescue StandardError => problem
      "#{error.class}: (message of this error raised #{problem.class})"
    end

    # The first frames of the error's backtrace, without those of OUTER.
    def frames(error)
      return [] if [Ending, Error].any? { |kind| error.is_a?(kind) }

      lines = (error.backtrace || []).reject { |line| OUTER.match?(line) }.first(MOST_FRAMES)
      lines.map { |line| "    #{utf8(line)}" }
    end

    def utf8(text)
      text = text.dup.force_encoding(Encoding::UTF_8) if text.encoding == Encoding::BINARY
      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
    end
  end
end
