# frozen_string_literal: true

# A Rails application in development mode, in which Rails loads code when it is
# needed, and reloads it after a change. Its database is that of database.yml.

require "rails"
require "active_record/railtie"
require "active_job/railtie"
require "fairq"

class Application < Rails::Application
  config.root = File.expand_path("..", __dir__)
  config.eager_load = false
  config.cache_classes = false
  config.active_job.queue_adapter = :fairq
  config.logger = Logger.new(nil)
  config.secret_key_base = "for tests only"
end

Rails.application.initialize!
