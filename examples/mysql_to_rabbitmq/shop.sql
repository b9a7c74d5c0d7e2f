CREATE DATABASE shop;
CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(50), email VARCHAR(50), country CHAR(2));
CREATE TABLE shop.orders (id INT PRIMARY KEY, customer_id INT, item VARCHAR(50), price DECIMAL(10, 2));
INSERT INTO shop.customers VALUES (1, 'Ada', 'ada@example.com', 'gb'), (2, 'Grace', 'grace@example.com', 'us');
INSERT INTO shop.orders VALUES (10, 1, 'engine', 99.50), (11, 2, 'compiler', 12.00), (12, 2, 'bug', NULL);
