# frozen_string_literal: true

module Fairq
  # The progress of a task: what its job sets, its steps, and its cursor.  The server stores one
  # object, whose element "fairq" holds the steps and the cursor.
  class Progress
    attr_reader :cursor, :steps

    # interval: seconds between saves of the cursor.  The block saves the progress as JSON.
    def initialize(value, interval, &store)
      @interval = interval
      @store = store
      @lock = Mutex.new # held during a save, so that no save overwrites a later one
      @saved_at = -Float::INFINITY
      ours = value["fairq"] if value.is_a?(Hash)
      @plain = ours.is_a?(Hash) ? value.except("fairq").presence : value
      ours = {} unless ours.is_a?(Hash)
      @steps = ours["steps"] || {}
      @cursor = @saved_cursor = ours["cursor"]
    end

    def value
      whole(@plain, @steps)
    end

    def set(value)
      @lock.synchronize { save(copy(value), @steps) }
    end

    def step(name)
      name = name.to_s
      unless @steps.key?(name)
        elements(@plain)
        keep(name, yield)
      end
      @steps[name]
    end

    def keep(name, result)
      result = copy(result)
      @lock.synchronize { save(@plain, @steps.merge(name => result)) }
    end

    def checkpoint(cursor)
      elements(@plain)
      @cursor = copy(cursor)
      save_cursor if now - @saved_at >= @interval
    end

    def save_cursor
      @lock.synchronize { save(@plain, @steps) unless @cursor.equal?(@saved_cursor) }
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def save(plain, steps)
      cursor = @cursor
      @store.call(JSON.generate(whole(plain, steps)))
      @plain, @steps, @saved_cursor = plain, steps, cursor
      @saved_at = now
    end

    def whole(plain, steps)
      return plain if steps.empty? && @cursor.nil?

      { **elements(plain), "fairq" => { "steps" => steps.presence, "cursor" => @cursor }.compact }
    end

    def elements(plain)
      return plain.to_h if plain.nil? || plain.is_a?(Hash)

      raise TypeError, "the progress of a task with steps or a cursor must be a hash"
    end

    # The value as a later attempt reads it.
    def copy(value)
      JSON.parse(JSON.generate(value))
    end
  end
end
