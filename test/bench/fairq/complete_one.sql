SELECT fairq.complete(:id, :attempt)
