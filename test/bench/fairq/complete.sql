SELECT fairq.complete_batch(:ids, :attempts)
