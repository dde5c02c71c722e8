# frozen_string_literal: true

module ActiveJob
  module QueueAdapters
    # == fairq adapter for Active Job
    #
    #   Rails.application.config.active_job.queue_adapter = :fairq
    #
    # Jobs are enqueued on Active Record's connection, if that is to PostgreSQL.  In a
    # transaction they exist when it commits, and not if it rolls back.
    class FairqAdapter < (defined?(AbstractAdapter) ? AbstractAdapter : Object)
      def enqueue(job) # :nodoc:
        add(job, Fairq::Producer.values(job))
      end

      def enqueue_at(job, timestamp) # :nodoc:
        add(job, Fairq::Producer.values(job, timestamp))
      end

      # Enqueues all or none.  Returns how many were enqueued.
      def enqueue_all(jobs) # :nodoc:
        own, others = jobs.partition { |job| Fairq.current_task&.job?(job) }
        Fairq::Producer.enqueue_all(others)
        own.each { |job| add(job, Fairq::Producer.values(job, job.scheduled_at&.to_f)) }
        jobs.each { |job| job.successfully_enqueued = true if job.respond_to?(:successfully_enqueued=) }
        jobs.size
      end

      # Whether the worker of this thread stops.  Active Job's continuations ask at each
      # checkpoint, and save their progress.
      def stopping?(_job = nil) # :nodoc:
        Fairq.current_task&.stopping? || false
      end

      # Active Job 7.2 would else wait for the commit, and lose the job if
      # the process dies then.
      def enqueue_after_transaction_commit? # :nodoc:
        false
      end

      private

      # A job that enqueues itself again, as retry_on does, replaces its task when it
      # has ended: the worker does both in one transaction.
      def add(job, values)
        task = Fairq.current_task
        if task&.job?(job)
          task.replace_by(job, values)
        else
          job.provider_job_id = Fairq::Producer.enqueue(values)
        end
      end
    end
  end
end
