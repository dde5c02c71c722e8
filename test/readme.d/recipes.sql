-- The precondition of docs/recipes.md: the parts of another extension that the page
-- uses.

-- The functions of pg_cron. Here, scheduled commands run at once.
CREATE SCHEMA cron;
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 1;
END $$;
