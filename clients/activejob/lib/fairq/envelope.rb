# frozen_string_literal: true

module Fairq
  # Converts a job to a task, and a task to a job.
  #
  # The payload contains the job's arguments.  Keyword arguments alone are a JSON object.  Other
  # arguments are an array, whose last element may have the keywords in Active Job's
  # notation.  headers->>'task' is the job's name, and headers->'activejob' contains the other data
  # of Active Job.  So other frameworks' workers can run these tasks, and this worker can run tasks
  # of other frameworks.
  module Envelope
    KEYWORDS = "_aj_ruby2_keywords"
    SYMBOL_KEYS = "_aj_symbol_keys"
    SERIALIZED = "_aj_serialized"

    module_function

    # The data that Active Job has serialized, as [payload, headers].
    def pack(data)
      options = data["fairq"].to_h
      rest = data.except("job_class", "arguments", "fairq")
      kept = options.except("group", "headers")
      rest["fairq"] = kept unless kept.empty?
      name = Fairq.tasks.key(data["job_class"]) || data["job_class"]
      [payload(data["arguments"]), { **options["headers"].to_h, "task" => name, "activejob" => rest }]
    end

    # The data that Active Job would have serialized for the job of a claimed task, which
    # may come from another framework.
    def unpack(claim, job_class)
      own = claim.headers["activejob"]
      own = {} unless own.is_a?(Hash)
      { "job_id" => "fairq-#{claim.id}", "priority" => claim.priority,
        "exception_executions" => {}, "enqueued_at" => claim.enqueued_at.utc.iso8601, **own,
        # includes earlier attempts, which Active Job has not recorded
        "executions" => own["executions"].to_i + claim.attempt - 1,
        "job_class" => job_class.name, "queue_name" => claim.queue, "provider_job_id" => claim.id,
        "arguments" => arguments(claim.payload),
        **{ "continuation" => claim.continuation, "exception_executions" => claim.retries }.compact,
        "fairq" => { **own["fairq"].to_h, "group" => claim.group,
                     "headers" => claim.headers.except("task", "activejob") } }
    end

    def payload(arguments)
      if arguments.size == 1 && keywords?(arguments.first)
        arguments = arguments.first.except(KEYWORDS)
      end
      plain(arguments)
    end

    # Whether the argument is a hash with nothing except keyword arguments.
    def keywords?(argument)
      argument.is_a?(Hash) && argument.key?(KEYWORDS) &&
        argument[KEYWORDS].to_set == argument.keys.to_set.delete(KEYWORDS)
    end

    # Removes the note that a hash has no symbols among its keys, which is the default when Active
    # Job reads it.
    def plain(value)
      case value
      when Array
        value.map { |element| plain(element) }
      when Hash
        return value if value.key?(SERIALIZED)

        value = value.except(SYMBOL_KEYS) if value[SYMBOL_KEYS] == []
        value.transform_values { |element| plain(element) }
      else
        value
      end
    end

    # The payload as Active Job's serialized arguments.
    def arguments(payload)
      case payload
      when Array
        payload
      when Hash
        [payload.merge(KEYWORDS => payload.keys)]
      else
        raise ArgumentError, "the payload must be an object, for keyword arguments, or an " \
                             "array, for positional ones, not #{payload.inspect}"
      end
    end

    # The class for a task's name.
    def job_class(name)
      known = name ? Fairq.tasks[name] || name : Fairq.default_job
      raise NoHandler, "no handler for a task without a name" unless known

      # nil if there is no such constant; raises if the constant's file raises
      found = known.to_s.safe_constantize
      raise NoHandler, "no handler for task #{name}: there is no class #{known}" unless found
      return found if found.is_a?(Class) && found < ActiveJob::Base

      raise NoHandler, "no handler for task #{name}: #{known} is not a job class"
    end
  end
end
