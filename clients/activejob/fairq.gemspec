# frozen_string_literal: true

require_relative "lib/fairq/version"

Gem::Specification.new do |spec|
  spec.name = "fairq"
  spec.version = Fairq::VERSION
  spec.summary = "Active Job on fairq, a fair queue in PostgreSQL"
  spec.description = "A queue adapter for Active Job and its worker. The queue is fair " \
                     "between tenants, and jobs are enqueued in the application's transactions."
  spec.authors = ["The fairq authors"]
  spec.license = "PostgreSQL"
  spec.homepage = "https://github.com/fairq/fairq"
  spec.metadata = { "source_code_uri" => spec.homepage,
                    "bug_tracker_uri" => "#{spec.homepage}/issues" }
  spec.files = Dir.chdir(__dir__) { Dir["README.md", "LICENSE", "bin/*", "lib/**/*.rb"] }
  spec.bindir = "bin"
  spec.executables = ["fairq-worker"]
  spec.required_ruby_version = ">= 2.7"
  spec.add_dependency "activejob", ">= 6.1", "< 8.2"
  spec.add_dependency "pg", ">= 1.4", "< 1.7"
end
