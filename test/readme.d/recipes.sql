-- The precondition of docs/recipes.md: another extension, as far as the page uses it.

-- pg_cron's: here scheduled commands run at once.
CREATE SCHEMA cron;
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 1;
END $$;
