# frozen_string_literal: true

require "opentelemetry-api"

require "fairq"

module Fairq
  # Traces for OpenTelemetry, and metrics if the gem opentelemetry-metrics-api is loaded.
  #
  #     Fairq::OpenTelemetry.instrument
  #
  # Names and attributes are those of OpenTelemetry's conventions for messaging.
  module OpenTelemetry
    API = ::OpenTelemetry
    PROPAGATOR = API::Trace::Propagation::TraceContext.text_map_propagator

    # Creates a span for each call that enqueues jobs, and adds the span's traceparent
    # to the jobs' headers.
    module Sending
      def enqueue(job)
        OpenTelemetry.send_jobs([job]) { super }
      end

      def enqueue_at(job, timestamp)
        OpenTelemetry.send_jobs([job]) { super }
      end

      def enqueue_all(jobs)
        OpenTelemetry.send_jobs(jobs) { super }
      end
    end

    @spans = {}.compare_by_identity # of attempts

    module_function

    # Call this method once per process, before the worker starts.
    def instrument
      @tracer = API.tracer_provider.tracer("fairq", VERSION)
      meter = API.meter_provider.meter("fairq", version: VERSION) if API.respond_to?(:meter_provider)
      @sent = meter&.create_counter("messaging.client.sent.messages", unit: "{message}",
                                                                       description: "Tasks that were enqueued")
      @consumed = meter&.create_counter("messaging.client.consumed.messages",
                                        unit: "{message}", description: "Attempts that have ended")
      @duration = meter&.create_histogram("messaging.process.duration", unit: "s",
                                                                        description: "Durations of attempts")
      ActiveJob::QueueAdapters::FairqAdapter.prepend(Sending)
      Fairq.on(:before) { |task| begin_attempt(task) }
      Fairq.on(:after) { |task| end_attempt(task) }
      Fairq.on(:error) { |task, error| end_attempt(task, error.class.name, error) }
      Fairq.on(:lost) { |task| end_attempt(task, "lost") }
    end

    def attributes(operation, kind, queue, name)
      { "messaging.system" => "fairq", "messaging.operation.name" => operation, "messaging.operation.type" => kind,
        "messaging.destination.name" => queue, "fairq.task" => name }.compact
    end

    # The headers keep a traceparent that the caller, or an earlier call by the same job, has set.
    def send_jobs(jobs, &enqueue)
      return yield if jobs.empty? || jobs.any? { |job| Fairq.current_task&.job?(job) }

      queue = jobs.map(&:queue_name).uniq.join(", ")
      names = jobs.map { |job| Fairq.tasks.key(job.class.name) || job.class.name }.uniq
      about = attributes("enqueue", "send", queue, (names.first if names.one?))
      result = @tracer.in_span("enqueue #{queue}", kind: :producer,
                                                   attributes: { **about, "messaging.batch.message_count" => jobs.size }) do
        jobs.each { |job| job.fairq_options["headers"] = with_traceparent(job.fairq_options["headers"].to_h) }
        enqueue.call
      end
      @sent&.add(jobs.size, attributes: about)
      result
    end

    def with_traceparent(headers)
      return headers if headers.transform_keys(&:to_s).key?("traceparent")

      {}.tap { |carrier| PROPAGATOR.inject(carrier) }.merge(headers)
    end

    # The span has a trace of its own, with a link to the span of the producer.  Each job has a
    # thread of its own, so nothing detaches the context.
    def begin_attempt(task)
      sender = API::Trace.current_span(PROPAGATOR.extract(texts(task), context: API::Context::ROOT)).context
      span = @tracer.start_root_span(
        "process #{task.queue}", kind: :consumer, links: ([API::Trace::Link.new(sender)] if sender.valid?),
                                 attributes: { **about(task), "messaging.message.id" => task.id.to_s,
                                               "fairq.group" => task.group, "fairq.attempt" => task.attempt }
      )
      @spans[task] = span
      API::Context.attach(API::Trace.context_with_span(span, parent_context: API::Context::ROOT))
    end

    # Called at a timeout or the worker's end, in a thread other than the job's.
    def end_attempt(task, type = nil, error = nil)
      span = @spans.delete(task) or return
      if type
        span.record_exception(error) if error
        span.status = API::Trace::Status.error(error ? error.message : type)
        span.set_attribute("error.type", type)
      end
      span.finish
      all = { **about(task), "error.type" => type }.compact
      @duration&.record(task.seconds, attributes: all)
      @consumed&.add(1, attributes: all)
    end

    def about(task)
      name = texts(task)["task"]
      attributes("process", "process", task.queue, name)
    end

    # The headers may contain anything, or be unreadable.
    def texts(task)
      task.headers.to_h.select { |_, value| value.is_a?(String) }
    rescue Error, NoMethodError, TypeError
      {}
    end
  end
end
