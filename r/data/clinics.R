clinics <- local({
  set.seed(6, kind = "Mersenne-Twister", normal.kind = "Inversion", sample.kind = "Rejection")
  count <- 2200
  age <- sample(35:88, count, replace = TRUE)
  treatment <- sample(c("usual", "new"), count, replace = TRUE)
  hazard <- 0.022 * 1.035^(age - 60) * ifelse(treatment == "new", 0.55, 1)
  death <- stats::rexp(count, hazard)
  end <- stats::runif(count, 12, 48)
  age[stats::runif(count) < 0.03] <- NA
  data.frame(
    site = rep(c("north", "south", "west"), c(900, 700, 600)),
    age = age,
    sex = sample(c("F", "M"), count, replace = TRUE),
    treatment = treatment,
    months = round(pmin(death, end), 1),
    died = ifelse(death <= end, "yes", "no")
  )
})
