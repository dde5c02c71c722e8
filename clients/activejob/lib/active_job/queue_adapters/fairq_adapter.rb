# frozen_string_literal: true

module ActiveJob
  module QueueAdapters
    # == fairq adapter for Active Job
    #
    #   Rails.application.config.active_job.queue_adapter = :fairq
    #
    # The adapter enqueues jobs on Active Record's connection, if its database is
    # PostgreSQL. In a transaction, the jobs exist only after the transaction commits.
    # After a rollback they do not exist.
    class FairqAdapter < (defined?(AbstractAdapter) ? AbstractAdapter : Object)
      def enqueue(job) # :nodoc:
        add(job, Fairq::Producer.values(job))
      end

      def enqueue_at(job, timestamp) # :nodoc:
        add(job, Fairq::Producer.values(job, timestamp))
      end

      # Enqueues all jobs or none.  Returns the number of enqueued jobs.
      def enqueue_all(jobs) # :nodoc:
        own, others = jobs.partition { |job| Fairq.current_task&.job?(job) }
        Fairq::Producer.enqueue_all(others)
        own.each { |job| add(job, Fairq::Producer.values(job, job.scheduled_at&.to_f)) }
        jobs.each { |job| job.successfully_enqueued = true if job.respond_to?(:successfully_enqueued=) }
        jobs.size
      end

      # Whether the worker of this thread is stopping.  Active Job's continuations call this
      # method at each checkpoint, and enqueue the rest of their work if it returns true.
      def stopping?(_job = nil) # :nodoc:
        task = Fairq.current_task
        task&.checkpoint_continuation!
        task&.stopping? || false
      end

      # Returns false.  Otherwise Active Job 7.2 would enqueue the job only
      # after the commit, and lose it if the process died in between.
      def enqueue_after_transaction_commit? # :nodoc:
        false
      end

      private

      # If a job enqueues itself again, as retry_on does, the new task replaces the old one at the
      # end of the attempt.  The worker ends the old task and adds the new one in one
      # transaction.
      def add(job, values)
        task = Fairq.current_task
        if task&.job?(job)
          task.replace_by(job, values)
        elsif (waits = job.fairq_once["waits"])
          job.provider_job_id = Fairq::Producer.create_batch(values, waits)
        else
          job.provider_job_id = Fairq::Producer.enqueue(values)
        end
      end
    end
  end
end
