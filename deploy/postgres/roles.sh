#!/bin/sh
# Creates the roles of Farol and its database, in a new cluster only. farol_owner owns
# and migrates the schema, farol reads and writes rows, and neither is a superuser.
# farol_serve serves people; without a password it cannot log in.
# The superuser has no password, and so can connect by the server's own socket only.
set -eu
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres <<'SQL'
\getenv owner FAROL_OWNER_PASSWORD
\getenv work FAROL_WORK_PASSWORD
\set serve ''
\getenv serve FAROL_SERVE_PASSWORD
CREATE ROLE farol_admin NOLOGIN;
CREATE ROLE farol_auditor NOLOGIN;
CREATE ROLE farol_owner LOGIN PASSWORD :'owner';
CREATE ROLE farol LOGIN PASSWORD :'work';
CREATE ROLE farol_web NOLOGIN;
CREATE ROLE farol_serve LOGIN IN ROLE farol_web;
ALTER ROLE farol_serve PASSWORD :'serve';
GRANT pg_read_all_stats TO farol, farol_serve;
CREATE DATABASE farol OWNER farol_owner;
REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
ALTER ROLE CURRENT_USER PASSWORD NULL;
SQL
