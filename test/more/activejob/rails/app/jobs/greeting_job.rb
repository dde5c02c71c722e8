# frozen_string_literal: true

class GreetingJob < ActiveJob::Base
  fairq_task "greet"
  retry_on(KeyError, wait: 0, attempts: 2) { |_, error| say("gave up", error.message) }

  def self.say(event, *more)
    $stdout.write("#{JSON.generate({ event: event, id: Fairq.current_task.id, more: more })}\n")
    $stdout.flush
  end

  def perform(name)
    self.class.say("greet", name, ActiveRecord::Base.connection.select_value("SELECT current_database()"))
    raise KeyError, "no #{name}" if name == "nobody"
  end
end
