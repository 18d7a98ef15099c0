# Figures in base graphics: curves with intervals and numbers at risk, ratios, and other numbers.

#' Draw an answer
#'
#' Curves, such as Kaplan and Meier's, have shaded intervals that include the noise, and beneath them the
#' noisy numbers at risk; regressions are drawn as ratios or slopes with intervals; other numbers as
#' points with intervals.
#'
#' @param x An answer.
#' @param groups Names of the groups to draw; all but the sum over groups if left out.
#' @param col Colours, one for each group.
#' @param band Whether the shaded region holds the whole curve instead of each of its points.
#' @param quantity Which numbers to draw where there are no curves; the commonest if left out.
#' @param xlab,ylab,main,xlim,ylim As in [graphics::plot.default()].
#' @param ... Further arguments of [graphics::plot.default()].
#' @return The answer, invisibly.
#' @examples
#' \dontrun{
#' plot(answers$survival, col = c("black", "red"), band = TRUE)
#' }
#' @export
plot.hubbub_answer <- function(x, ..., groups = NULL, col = NULL, band = FALSE, quantity = NULL,
                               xlab = NULL, ylab = NULL, main = x$title, xlim = NULL, ylim = NULL) {
  if (nzchar(x$refusal)) refuse("not answered: ", x$refusal, class = "hubbub_refusal")
  labels <- list(xlab = xlab, ylab = ylab, main = main, xlim = xlim, ylim = ylim, ...)
  if (is.null(x$curves)) plot_rows(x, quantity, labels) else plot_curves(x, groups, col, band, labels)
  invisible(x)
}

plot_curves <- function(answer, groups, col, band, labels) {
  curves <- split(answer$curves, factor(answer$curves$group, unique(answer$curves$group)))
  if (is.null(groups)) groups <- if (length(curves) > 1) setdiff(names(curves), "") else names(curves)
  if (!all(groups %in% names(curves))) {
    refuse("expected groups out of ", paste(names(curves), collapse = ", "), ", got ", paste(groups, collapse = ", "), class = "hubbub_bad_input")
  }
  curves <- curves[groups]
  if (is.null(col)) col <- grDevices::palette.colors(length(curves) + 1)[-1]
  ends <- if (band && !is.null(answer$curves$band_low)) c("band_low", "band_high") else c("low", "high")
  at_risk <- !is.null(answer$curves$at_risk)
  old <- graphics::par(mar = c(if (at_risk) 6 + length(curves) else 5, 7, 3, 1))
  on.exit(graphics::par(old))
  all <- do.call(rbind, curves)
  is_share <- all(all[ends] >= 0 & all[ends] <= 1)
  usual <- list(
    x = NA, xlim = range(all$x), ylim = if (is_share) 0:1 else range(all[ends]), las = 1, bty = "l",
    xaxt = "n", xlab = all$column[1], ylab = answer$kind
  )
  do.call(graphics::plot, utils::modifyList(usual, Filter(Negate(is.null), labels)))
  Map(function(curve, colour) {
    graphics::polygon(
      c(curve$x, rev(curve$x)), c(curve[[ends[1]]], rev(curve[[ends[2]]])),
      col = grDevices::adjustcolor(colour, 0.2), border = NA
    )
    graphics::lines(curve$x, curve$y, col = colour, lwd = 2)
  }, curves, col)
  if (length(curves) > 1) graphics::legend("bottomleft", names(curves), col = col, lwd = 2, bty = "n")
  grid <- unique(all$x)
  ticks <- grid[unique(round(seq(1, length(grid), length.out = min(7, length(grid)))))]
  graphics::axis(1, if (at_risk) ticks)
  if (at_risk) write_at_risk(curves, col, ticks)
}

# Numbers at risk under the ticks, which are points of the curves' grid.
write_at_risk <- function(curves, col, ticks) {
  graphics::mtext("at risk (noisy)", side = 1, line = 4, adj = 0, cex = 0.8)
  for (k in seq_along(curves)) {
    shown <- curves[[k]]$at_risk[match(ticks, curves[[k]]$x)]
    graphics::mtext(round(shown), side = 1, line = 4 + k, at = ticks, col = col[k], cex = 0.8)
    graphics::mtext(
      names(curves)[k], side = 1, line = 4 + k, at = graphics::par("usr")[1], adj = 1.2,
      col = col[k], cex = 0.8
    )
  }
}

# Numbers with intervals, one below the other; ratios on a logarithmic axis.
plot_rows <- function(answer, quantity, labels) {
  rows <- answer$rows
  ratios <- is_ratio(rows)
  if (is.null(quantity)) {
    counts <- table(rows$quantity)
    quantity <- if (any(ratios)) unique(rows$quantity[ratios])[1] else names(which.max(counts))
  }
  rows <- rows[rows$quantity == quantity, ]
  if (!nrow(rows)) refuse("expected a quantity of ", paste(unique(answer$rows$quantity), collapse = ", "), ", got ", quantity, class = "hubbub_bad_input")
  is_log <- is_ratio(rows)[1] && all(rows$low > 0)
  names <- trimws(paste(rows$column, rows$level, rows$group))
  old <- graphics::par(mar = c(5, min(20, 2 + 0.55 * max(nchar(names))), 3, 1))
  on.exit(graphics::par(old))
  y <- rev(seq_len(nrow(rows)))
  usual <- list(
    x = rows$value, y = y, xlim = range(rows$low, rows$high, if (is_log) 1), yaxt = "n", pch = 19, bty = "l",
    ylim = c(0.5, nrow(rows) + 0.5), log = if (is_log) "x" else "", xlab = quantity, ylab = ""
  )
  do.call(graphics::plot, utils::modifyList(usual, Filter(Negate(is.null), labels)))
  graphics::segments(rows$low, y, rows$high, y)
  graphics::axis(2, at = y, labels = names, las = 1, tick = FALSE, cex.axis = 0.8)
  if (is_log) graphics::abline(v = 1, lty = 3)
}
