CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(50), email VARCHAR(50), country CHAR(2));
CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT, item VARCHAR(50), price NUMERIC(10, 2), paid BOOLEAN);
INSERT INTO customers VALUES (1, 'Alan', 'alan@example.com', 'gb');
INSERT INTO orders VALUES (10, 1, 'tape', 3.50, true), (11, 1, 'apple', NULL, false);
