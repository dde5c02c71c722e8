# frozen_string_literal: true

module Fairq
  # Jobs, and a job that runs when all of them have ended.
  #
  #     Fairq::Batch.enqueue(on_finish: ReportJob.new("May")) do
  #       customers.each { |customer| MailJob.perform_later(customer) }
  #     end
  class Batch
    class << self
      # Creates a batch, adds the jobs that the block enqueues, and closes the batch, all in one
      # transaction.  Takes the arguments of create.
      def enqueue(**arguments, &block)
        Producer.in_transaction do
          batch = create(**arguments)
          batch.add(&block)
          batch.close
          batch
        end
      end

      # Creates a batch and enqueues the job that waits for it: a job, or a job class.
      # With on_finish, the job runs when all jobs of the batch have ended.  With on_success, it
      # fails as soon as a job of the batch ends without success.  Takes the options of set.
      def create(on_finish: nil, on_success: nil, **options)
        raise ArgumentError, "give either on_finish or on_success" if on_finish.nil? == on_success.nil?

        job = on_finish || on_success
        job = job.new if job.is_a?(Class)
        job.enqueue(options.merge(waits: on_finish ? "finish" : "success"))
        raise Error, "the job that waits for the batch was not enqueued" if job.provider_job_id.nil?

        new(job.provider_job_id)
      end

      # The batch to which this thread's jobs are added; nil: none.
      def current
        Thread.current.thread_variable_get(:fairq_batch)
      end

      # The id of a batch, given as a Batch or as an id.
      def id_of(batch)
        batch.respond_to?(:id) ? batch.id : Integer(batch)
      end
    end

    attr_reader :id

    def initialize(id)
      @id = Integer(id)
    end

    # Adds the jobs that the block enqueues in this thread.
    def add
      before = Batch.current
      Thread.current.thread_variable_set(:fairq_batch, self)
      yield self
    ensure
      Thread.current.thread_variable_set(:fairq_batch, before)
    end

    # Closes the batch, so that no more jobs can be added.  Returns false if it is closed, finished,
    # or unknown.
    def close
      # a driver of Active Record decodes booleans
      Producer.ask("SELECT fairq.close_batch($1::bigint)::int", "Fairq Close Batch", [@id.to_s]).to_i == 1
    end

    # Closes the batch and cancels its jobs that are not running.  Returns their number.
    def cancel
      Producer.ask("SELECT fairq.cancel_batch($1::bigint)", "Fairq Cancel Batch", [@id.to_s]).to_i
    end

    def ==(other)
      other.is_a?(Batch) && other.id == @id
    end
    alias eql? ==

    def hash
      @id.hash
    end
  end
end
