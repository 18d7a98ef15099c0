-- Tables of a flat export of REDCap: what stands in a record's own row, and each instance of "labs".
CREATE TEMP TABLE export AS SELECT * FROM read_csv('redcap.csv', header = true, all_varchar = true);

CREATE TABLE patients AS
SELECT record_id AS pid, demo_sex AS sex, outcome_died AS died
FROM export
WHERE redcap_repeat_instrument IS NULL;

CREATE TABLE labs AS
SELECT record_id AS pid, 'hba1c' AS test, lab_date AS day, lab_hba1c_ifcc AS value
FROM export WHERE redcap_repeat_instrument = 'labs'
UNION ALL
SELECT record_id, 'glucose', lab_date, lab_glucose
FROM export WHERE redcap_repeat_instrument = 'labs';
