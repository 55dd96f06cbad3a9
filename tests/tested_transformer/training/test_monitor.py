"""When a run is given up: the rule by hand, and what it says."""

import math

from tested_transformer.training.monitor import DivergenceWatch, TrainingDivergedError
from tested_transformer.training.recipe import Recipe


def test_a_loss_that_is_no_number_ends_it_at_once():
    for loss in (math.nan, math.inf, -math.inf):
        watch = DivergenceWatch(Recipe())
        assert watch.see(2.0) is None
        assert watch.see(loss) == f"the loss is {loss}"


def test_a_gradient_that_is_no_number_ends_it_unless_gradients_are_scaled():
    assert DivergenceWatch(Recipe()).see(2.0, math.inf) == "the gradient's norm is inf"
    watch = DivergenceWatch(Recipe(patience=3), scaled=True)
    assert [watch.see(2.0, math.inf) for _ in range(2)] == [None, None]
    assert not watch.calm
    assert watch.see(2.0, 1.0) is None
    assert watch.calm
    assert [watch.see(2.0, math.nan) for _ in range(2)] == [None, None]
    assert watch.see(2.0, math.nan) == "the gradient's norm is nan"


def test_it_is_the_mean_that_counts_and_not_a_loss():
    watch = DivergenceWatch(Recipe(margin=0.5, patience=3))
    # (0.9³ 2 + 0.9² 9 + 0.9 2.1 + 2.1) / (0.9³ + 0.9² + 0.9 + 1) = 3.704
    reasons = [watch.see(loss) for loss in [2.0, 9.0, 2.1, 2.1]]
    assert reasons == [None, None, None, "the loss rose from 2.00 to 3.70"]
    # A loss that comes down again in time does no harm.
    watch = DivergenceWatch(Recipe(margin=0.5, patience=3))
    assert {watch.see(loss) for loss in [2.0, 3.0, 3.0, 1.0] * 9} == {None}
    assert watch.calm


def test_the_margin_is_above_the_best_not_the_first():
    # 3.5 is less than 5, and more than 2 + 1.4. After n steps the mean is 3.5 - 1.5 ·
    # 0.9^n, which exceeds 2 + margin from step 4, 11 and 26 on.
    for margin, first in ((0.5, 4), (1.0, 11), (1.4, 26)):
        watch = DivergenceWatch(Recipe(margin=margin, patience=5))
        assert {watch.see(loss) for loss in [5.0] * 200 + [2.0] * 200} == {None}
        reasons = [watch.see(3.5) for _ in range(first + 4)]
        reached = 3.5 - 1.5 * 0.9 ** (first + 4)
        assert {*reasons[:-1]} == {None}
        assert reasons[-1] == f"the loss rose from 2.00 to {reached:.2f}"


def test_the_error_says_what_is_left_and_what_to_try():
    plain = Recipe(lr=0.5, warmup=7, clip=0.0)
    muon = Recipe(optimizer="muon", muon_lr=0.5, warmup=0, precision="fp32")
    for recipe, saved, message in (
        (
            plain,
            10,
            "nan at step 13; the last state was saved at step 10; "
            "try lr=0.25, or warmup=14, or clip=1.0, or precision='fp32'",
        ),
        (
            muon,
            None,
            "nan at step 13; nothing was saved before; "
            "try lr=0.0005 and muon_lr=0.25, or warmup=10",
        ),
    ):
        advice = DivergenceWatch(recipe).advice()
        error = TrainingDivergedError(13, saved, "nan", advice)
        assert (str(error), error.step, error.saved_step) == (message, 13, saved)
