-- Tables of a bulk export of FHIR, a resource a line; LOINC's codes say which test it was.
CREATE TABLE patients AS
SELECT id AS pid, gender AS sex, deceasedBoolean AS died
FROM read_json('Patient.ndjson', format = 'newline_delimited');

CREATE TABLE labs AS
SELECT replace(subject.reference, 'Patient/', '') AS pid,
       CASE code.coding[1].code WHEN '4548-4' THEN 'hba1c' WHEN '14749-6' THEN 'glucose' END AS test,
       substring(CAST(effectiveDateTime AS VARCHAR), 1, 10) AS day,
       valueQuantity.value AS value
FROM read_json('Observation.ndjson', format = 'newline_delimited');
