"""The peers: other readers of MySQL, on the server and data that Tailrace is measured on, in the same run.

toolkit     jars, classes and a virtual environment in the cache: what is needed to run them
peers       which there are, and how each is started
watch       runs one, and takes its CPU time and memory from outside
figures     the lines of the report
replica     the peer of replicas, and its lines
*.java      the programs round the Java libraries: they count and do nothing else
reader.py   the same for Python's mysql-replication
compare     Debezium's messages and Tailrace's of the same changes, field by field
"""
