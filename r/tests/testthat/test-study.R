# Data frames become files, and what R has becomes what a study can say. No command is needed.

written <- function(table, ...) {
  study <- hubbub_study(
    list(north = table, south = table), q = hubbub_ask("table"), epsilon = 1, ...
  )
  readLines(file.path(study$folder, "north.csv"), encoding = "UTF-8")
}

test_that("cells are written as they are, and missing ones as nothing", {
  table <- data.frame(
    a = c(0.1 + 0.2, NA, 1e-300), b = factor(c("x,\"y\"", NA, "\u00e9")), c = c(TRUE, FALSE, NA),
    d = 1:3
  )
  public <- list(a = c(0, 1), b = c("x,\"y\"", "\u00e9"), c = c(FALSE, TRUE), d = c(0, 9))
  expect_identical(written(table, columns = public), c(
    '"a","b","c","d"', '0.30000000000000004,"x,""y""","TRUE",1', '"","","FALSE",2',
    '1e-300,"\u00e9","",3'
  ))
})

test_that("numbers are read and written to the last bit", {
  values <- stats::runif(50000) * 100
  texts <- hubbub:::number_text(values)
  expect_identical(hubbub:::numbers_of(texts), values)
  expect_identical(hubbub:::numbers_of(c("1", NA)), c(1, NA))
})

test_that("numbers have points where the locale has commas", {
  skip_on_os(c("windows", "mac"))
  folder <- tempfile("locales-")
  dir.create(folder)
  source <- file.path(folder, "source")
  writeLines(c("LC_NUMERIC", 'decimal_point ","', 'thousands_sep ""', "grouping -1", "END LC_NUMERIC"), source)
  skip_if(Sys.which("localedef") == "", "a locale of commas cannot be made here")
  words <- c("-c", "-i", source, "-f", "ANSI_X3.4-1968", file.path(folder, "commas"))
  suppressWarnings(system2("localedef", words, stdout = FALSE, stderr = FALSE)) # it warns of what is left out
  old <- Sys.getenv("LOCPATH", NA)
  Sys.setenv(LOCPATH = folder)
  on.exit(if (is.na(old)) Sys.unsetenv("LOCPATH") else Sys.setenv(LOCPATH = old))
  on.exit(suppressWarnings(Sys.setlocale("LC_NUMERIC", "C")), add = TRUE)
  skip_if(suppressWarnings(Sys.setlocale("LC_NUMERIC", "commas")) == "", "a locale of commas cannot be set here")
  lines <- written(data.frame(a = c(0.5, 0.1 + 0.2), b = c("x", "y")), columns = list(a = c(0.25, 1), b = c("x", "y")))
  values <- hubbub:::from_json('{"a": 2.5, "b": [0.1, 1e-3]}')
  expect_identical(sprintf("%.1f", 0.5), "0,5") # the caller's locale is as it was
  Sys.setlocale("LC_NUMERIC", "C")
  expect_identical(lines[-1], c('0.5,"x"', '0.30000000000000004,"y"'))
  expect_identical(values, list(a = 2.5, b = c(0.1, 1e-3)))
})

test_that("a class that cannot be read without its package is written as what it holds", {
  for (kind in c("double", "character")) {
    registerS3method(paste0("as.", kind), "odd", function(x, ...) stop("no package"), envir = asNamespace("base"))
  }
  table <- data.frame(a = 1:2)
  table$a <- structure(c(1.5, NA), class = "odd", labels = c(low = 1.5))
  table$b <- structure(c("x", NA), class = "odd")
  expect_identical(written(table, columns = list(a = c(0, 9), b = c("x", "y"))), c('"a","b"', '1.5,"x"', '"",""'))
})

test_that("undeclared columns are not written, and files are their owner's", {
  table <- data.frame(name = "Ann", age = 50)
  study <- hubbub_study(
    list(north = table, south = table), q = hubbub_ask("table"), columns = list(age = c(0, 99)), epsilon = 1
  )
  path <- file.path(study$folder, "south.csv")
  expect_identical(readLines(path), c('"age"', "50"))
  expect_identical(format(file.info(path)$mode), "600")
})

test_that("columns are bounds, categories or keys, and nothing else", {
  lines <- study_lines(hubbub_ask("table"), list(
    age = c(30, 90.5), sex = factor(c("F", "M")), "a b" = c(FALSE, TRUE),
    months = list(low = 0, high = 48, step = 0.1)
  ))
  expect_true(all(c(
    "age = { low = 30, high = 90.5 }", 'sex = { categories = ["F", "M"] }',
    '"a b" = { categories = ["FALSE", "TRUE"] }', "months = { low = 0, high = 48, step = 0.1 }"
  ) %in% lines))
  for (wrong in list(1, 1:3, as.Date(c("2024-01-01", "2025-01-01")), NULL)) {
    expect_error(
      hubbub_study(c("a", "b"), q = hubbub_ask("table"), columns = list(age = c(1, 2), day = wrong)[1:2], epsilon = 1),
      "expected of column 'day' two bounds", class = "hubbub_bad_input"
    )
  }
})

test_that("what has no name of its own, or another's, is refused", {
  of <- function(...) hubbub_study(names(sites), ..., epsilon = 1)
  table <- hubbub_ask("table", ~age)
  for (wrong in list(list(c(30, 90)), list(age = c(30, 90), c("F", "M")), list(age = c(30, 90), age = c(30, 90)))) {
    expect_error(of(q = table, columns = wrong), "a list with a name for each", class = "hubbub_bad_input")
  }
  expect_error(of(q = table, q = table, columns = columns), "got q twice", class = "hubbub_bad_input")
  expect_error(of(q = table, columns = columns, capactiy = 5), "got capactiy = numeric", class = "hubbub_bad_input")
})

test_that("truth values and an event of 0 and 1 need not be declared", {
  table <- data.frame(months = 1:4, died = c(0, 1, 0, 1), old = c(TRUE, FALSE, NA, TRUE))
  study <- hubbub_study(
    list(north = table, south = table),
    q = hubbub_ask("survival", Surv(months, died) ~ old), columns = list(months = c(0, 9)), epsilon = 1
  )
  expect_true(all(c('died = { categories = ["0", "1"] }', 'old = { categories = ["FALSE", "TRUE"] }') %in% readLines(study$path)))
})

test_that("what is no number, text or truth value is refused with a way out", {
  table <- data.frame(x = 1:2)
  wide <- matrix(1:4, 2) # which would fill the rows of others
  large <- structure(c(1, 2), class = "integer64") # whose bits are no double's
  for (values in list(as.Date("2024-01-01") + 1:2, wide, large, complex(2), as.list(1:2))) {
    table$x <- values
    expect_error(written(table, columns = list(x = c(0, 9))), "days since a day of the protocol", class = "hubbub_bad_input")
  }
  table$x <- matrix(1:2) # as scale() gives one
  expect_identical(written(table, columns = list(x = c(0, 9))), c('"x"', "1", "2"))
})

test_that("what a study cannot hold is refused", {
  for (value in list(NA, NA_character_, as.Date("2024-01-01"), mean)) {
    expect_error(study_lines(hubbub_ask("table", ~age, bins = value)), "expected numbers, texts or truth values", class = "hubbub_bad_input")
  }
  table <- data.frame(x = c("a", "\xff"))
  expect_error(written(table, columns = list(x = c("a", "b"))), "expected texts of an encoding that R knows", class = "hubbub_bad_input")
})

test_that("a column that stands twice is written twice, for the command to refuse", {
  table <- data.frame(x = 1, x = 2, y = 3, check.names = FALSE)
  expect_identical(written(table, columns = list(y = c(0, 9), x = c(0, 9)))[1], '"y","x","x"')
})

test_that("names of any letters are quoted where they are no words", {
  table <- stats::setNames(as.data.frame(diag(5)), c("if", 'a "b"', "$(touch x)", "gr\u00f6\u00dfe", "a,b"))
  public <- stats::setNames(rep(list(c(0, 9)), 5), names(table))
  expect_identical(written(table, columns = public)[1], '"if","a ""b""","$(touch x)","gr\u00f6\u00dfe","a,b"')
  lines <- study_lines(hubbub_ask("table", stats::as.formula('~ `if` + `a "b"` + `a,b` | `gr\u00f6\u00dfe`')), public)
  expect_true('columns = ["if", "a \\"b\\"", "a,b"]' %in% lines)
  expect_true('by = "gr\u00f6\u00dfe"' %in% lines)
})

test_that("missing categories and folders that are not there are refused", {
  table <- data.frame(x = c("a", "b", NA))
  expect_error(written(table, columns = list(x = unique(table$x))), "some of them missing", class = "hubbub_bad_input")
  file <- file.path(tempfile(), "study.toml")
  expect_error(written(table, columns = list(x = c("a", "b")), file = file), "expected a folder", class = "hubbub_bad_input")
})

test_that("what are no sites is refused", {
  for (wrong in list(NULL, hubbub::clinics, list(1), list(data.frame(a = 1)), list(north = 1), 5)) {
    expect_error(
      hubbub_study(wrong, q = hubbub_ask("table"), columns = columns, epsilon = 1),
      "expected a named list of data frames", class = "hubbub_bad_input"
    )
  }
  expect_error(hubbub_study(sites, columns = columns, epsilon = 1), "expected a question", class = "hubbub_bad_input")
})

test_that("the number of units is of rows or of patients, and is said to be public", {
  table <- data.frame(pid = c(1, 1, 2), age = 50)
  units <- function(...) {
    study <- hubbub_study(list(north = table, south = table), q = hubbub_ask("table"), columns = list(age = c(0, 99)), epsilon = 1, ...)
    c(grep("^records", readLines(study$path), value = TRUE), study$note)
  }
  expect_identical(units()[1], "records = 6")
  expect_match(units()[2], "counts as public")
  expect_identical(units(patient = "pid", most_per_patient = 2)[1], "records = 4")
  expect_identical(units(records = 10), "records = 10")
})
