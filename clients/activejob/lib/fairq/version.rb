# frozen_string_literal: true

module Fairq
  VERSION = "1.0.0"
end
