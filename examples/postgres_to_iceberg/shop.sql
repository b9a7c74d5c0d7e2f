CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, email TEXT);
CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT, items TEXT[], price NUMERIC(10, 2), placed TIMESTAMPTZ);
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'ada@example.com'), (2, 'Grace', 'grace@example.com');
INSERT INTO orders VALUES (10, 1, '{engine,card}', 99.50, '2026-01-31 12:00+00'), (11, 2, '{}', NULL, NULL);
