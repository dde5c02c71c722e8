# frozen_string_literal: true

# The application, for the tests to call.  Evaluates each line, a JSON string
# of Ruby, and prints the value as JSON, or the error.

require_relative "app"

while (line = $stdin.gets)
  answer = begin
    { "value" => eval(JSON.parse(line), TOPLEVEL_BINDING) }
  rescue Exception => error
    { "error" => error.class.name, "message" => error.message }
  end
  puts(JSON.generate(answer))
end
