# What several files of tests share: three sites, what is public of them, and a state of their own.

Sys.setenv(XDG_STATE_HOME = tempfile("state-"))
sites <- split(hubbub::clinics, hubbub::clinics$site)
columns <- list(
  age = c(30, 90), sex = c("F", "M"), treatment = c("usual", "new"),
  months = c(0, 48), died = c("no", "yes")
)

# Tests that run the command are for machines that have it; `make r` demands it.
skip_without_hubbub <- function() {
  there <- tryCatch(length(hubbub_command()) > 0, hubbub_error = function(error) FALSE)
  if (!there && nzchar(Sys.getenv("HUBBUB_REQUIRED"))) stop("expected the command hubbub, found none")
  skip_if_not(there, "the command hubbub is installed")
}

ask <- function(question, tables = sites, epsilon = 2, ..., public = columns) {
  hubbub_statistics(tables, q = question, columns = public, epsilon = epsilon, progress = FALSE, ...)
}

# The lines of a study without sites' records.
study_lines <- function(question, public = columns) {
  study <- hubbub_study(names(sites), q = question, columns = public, epsilon = 2)
  readLines(study$path, encoding = "UTF-8")
}
