-- The image of postgres runs this in the database that it creates at its first
-- start.
CREATE EXTENSION fairq;
