-- The image of postgres runs this in the database that it makes at its first start.
CREATE EXTENSION fairq;
