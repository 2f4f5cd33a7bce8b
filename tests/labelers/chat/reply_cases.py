"""Replies in the forms that models use, and the option that each names.

The forms are those of public transcripts and of the programs that read them: the prompts and
filters of lm-evaluation-harness, OpenAI's simple-evals ("Answer: $LETTER"), MMLU-Pro ("the answer
is (X)"), MATH (`\\boxed`), DeepSeek-R1, Qwen3 and Magistral (thoughts in tags), gpt-oss (channels).
The wording is this project's own. B is right in all but those of None, which name no option.
"""

from __future__ import annotations

OPTIONS = ["Refund request", "Card arrival", "Exchange rate", "Lost card"]

LETTERS: list[tuple[str, int | None]] = [
    # a letter alone
    ("B", 1), ("b", 1), (" B ", 1), ("B.", 1), ("B)", 1), ("(B)", 1), ("(b)", 1), ("[B]", 1),
    ("**B**", 1), ("**B.**", 1), ("`B`", 1), ("\"B\"", 1), ("'B'", 1), ("B\n", 1), ("\n\nB", 1),
    ("$B$", 1), ("b)", 1), ("B:", 1), ("__B__", 1), ("“B”", 1),
    # a letter and the option's text
    ("B. Card arrival", 1), ("B) Card arrival", 1), ("(B) Card arrival", 1),
    ("B: Card arrival", 1), ("B - Card arrival", 1), ("**B. Card arrival**", 1),
    ("B card arrival", 1), ("b. card arrival", 1), ("B. \"Card arrival\"", 1),
    ("B) card_arrival", 1), ("**B)** Card arrival", 1), ("B. Card arrival.", 1),
    ("B — Card arrival", 1),
    # the option's text
    ("Card arrival", 1), ("card arrival", 1), ("CARD ARRIVAL", 1), ("card_arrival", 1),
    ("\"Card arrival\"", 1), ("Card arrival.", 1), ("**Card arrival**", 1), ("- Card arrival", 1),
    # a word before
    ("Option B", 1), ("option B", 1), ("Option B.", 1), ("Option (B)", 1),
    ("Option B: Card arrival", 1),
    ("Choice B", 1), ("Answer: B", 1), ("Answer: B.", 1), ("answer: b", 1), ("ANSWER: B", 1),
    ("Answer: (B)", 1), ("Answer: **B**", 1), ("**Answer:** B", 1), ("**Answer: B**", 1),
    ("Answer: B. Card arrival", 1), ("Answer: Card arrival", 1), ("Answer B", 1), ("Answer = B", 1),
    ("Final answer: B", 1), ("**Final Answer:** B", 1), ("Final Answer: (B) Card arrival", 1),
    ("The answer is B", 1), ("The answer is B.", 1), ("The answer is (B).", 1),
    ("The answer is: B", 1), ("the answer is b.", 1), ("The correct answer is B.", 1),
    ("The correct answer is: B. Card arrival", 1), ("The correct answer is **B**.", 1),
    ("The correct answer is (B) Card arrival.", 1), ("The best answer is B.", 1),
    ("The correct option is B.", 1), ("The correct option is (B).", 1),
    ("The right choice is B.", 1), ("Correct answer: B", 1), ("Correct option: B", 1),
    ("The most appropriate option is B.", 1), ("The most likely answer is B.", 1),
    ("The letter is B.", 1), ("My answer is B.", 1), ("My choice: B", 1),
    ("The answer is option B.", 1), ("The answer is \"Card arrival\".", 1),
    ("The answer to this question is B.", 1), ("The correct answer here is B.", 1),
    ("I choose B.", 1), ("I would choose B.", 1), ("I'd pick option B.", 1), ("I select (B).", 1),
    ("I would go with B.", 1), ("I'd go with Card arrival.", 1), ("It is B.", 1), ("It's B.", 1),
    ("It's option B.", 1), ("It is Card arrival.", 1), ("B is correct.", 1),
    ("B is the correct answer.", 1), ("B is the best choice.", 1), ("Option B is correct.", 1),
    ("(B) is correct.", 1), ("Selected: B", 1), ("Selected option: B", 1), ("Label: B", 1),
    ("Class: B", 1), ("Category: Card arrival", 1), ("→ B", 1), ("Sure! The answer is B.", 1),
    ("Sure, here is the answer: B", 1), ("Certainly! B", 1),
    # JSON and boxes
    ('{"answer": "B"}', 1), ('{"answer":"b"}', 1), ('{"answer": "Card arrival"}', 1),
    ('{"choice": "B"}', 1), ('{"answer": "B. Card arrival"}', 1), ("{'answer': 'B'}", 1),
    ('```json\n{"answer": "B"}\n```', 1), ('{"reason": "A fits less.", "answer": "B"}', 1),
    ('{"label": "card_arrival"}', 1), ('Here is the JSON: {"answer": "B"}', 1),
    ("\\boxed{B}", 1), ("$\\boxed{B}$", 1), ("The answer is $\\boxed{B}$.", 1),
    ("\\boxed{\\text{B}}", 1), ("$$\\boxed{\\text{Card arrival}}$$", 1),
    ("\\boxed{B. Card arrival}", 1),
    # with reasons
    ("B\n\nThe customer waits for a card.", 1), ("B, because the card has not come.", 1),
    ("B. The customer asks when a card comes.", 1), ("B. Because the card has not come.", 1),
    ("B) since the customer waits for it", 1), ("**B**\n\nExplanation: A is about money.", 1),
    ("The answer is B because A is about money.", 1),
    ("Option B, as the card has not come yet.", 1),
    ("The customer waits for a card. The answer is B.", 1),
    ("The customer waits for a card.\n\nAnswer: B", 1),
    ("The customer waits for a card, so the answer is B.", 1),
    ("The customer waits for a card. Therefore, the correct answer is (B) Card arrival.", 1),
    ("The customer waits for a card. Therefore, B.", 1), ("So B.", 1), ("Thus, (B).", 1),
    ("A) is wrong because nobody wants money back. The answer is B.", 1),
    ("A is about money, C about rates, D about a loss. B is correct.", 1),
    ("Let's go through the options.\nA. Refund request: no.\nB. Card arrival: yes.\nC. Exchange"
     " rate: no.\nD. Lost card: no.\n\nThe correct answer is B.", 1),
    ("First I thought the answer is A. But no money is asked for, so the answer is B.", 1),
    ("The answer is A. Wait, that is about money. The answer is B.", 1),
    ("It could be A or D, but the best option is B.", 1),
    ("The message is about a card that has not come, which fits Card arrival.", 1),
    ("This is a Card arrival question.", 1), ("The intent is card arrival.", 1),
    ("The answer is not A. It is B.", 1), ("Not Refund request but Card arrival", 1),
    ("Step 1: read. Step 2: compare.\n\n**Final Answer**: B", 1),
    # what two readers who had not seen the program wrote, and it lost at first
    ("La respuesta correcta es B.", 1), ("La respuesta correcta es la B.", 1), ("答案是:B", 1),
    ("答案是B。", 1), ("正解はBです。", 1), ("B<|eot_id|>", 1), ("The answer is not A but B.", 1),
    ("B, not D. The card arrived but was then misplaced.", 1),
    ("B (A would only be right if the customer had asked for the money back.)", 1),
    ("Options A, C and D can be ruled out, as the customer only asks about delivery. That leaves"
     " B.", 1),
    ("The option that is right is B, because the card has not come.", 1),
    ("analysisWe need to choose the letter. Could be A? No. B.assistantfinalB", 1),
    # thoughts
    ("<think>A? The answer is A. No, money is not asked for.</think>B", 1),
    ("<think>\nThe answer is C\n</think>\n\nB", 1), ("<think></think>\n\nB", 1),
    ("The answer is A, or D.\n</think>\n\nAnswer: B", 1),
    ("<thinking>It is A.</thinking> B. Card arrival", 1),
    ("[THINK]The answer is D.[/THINK]The answer is B.", 1),
    ("<reasoning>A is likely.</reasoning>\n<answer>B</answer>", 1), ("<answer>B</answer>", 1),
    ("<answer> Card arrival </answer>", 1),
    ("<|channel|>analysis<|message|>The answer is A.<|end|><|start|>assistant<|channel|>final"
     "<|message|>B", 1),
    ('<think>{"answer": "A"}</think>{"answer": "B"}', 1),
    # no option, two options, or a letter that is a word
    ("", None), ("<think>The answer is B", None), ("<think>B</think>", None),
    ("A message about a card", None), ("A customer asks about a card.", None),
    ("I do not know.", None),
    ("I cannot help with that.", None), ("I can't answer this.", None), ("E", None),
    ("F. Other", None),
    ("The answer is a matter of taste", None), ("None of the above", None), ("A or B", None),
    ("Both A and B", None), ("A, B", None), ("AB", None), ("B or D.", None),
    ("Refund request or card arrival", None), ("B. Refund request", None),
    ("A. Refund request\nB. Card arrival\nC. Exchange rate\nD. Lost card", None),
    ("The answer is not B.", None), ("Not card arrival.", None),
    ("I would say none of them.", None),
    ('{"answer": "E"}', None), ('{"answer": "other"}', None), ('{"answer": null}', None),
    ("\\boxed{7}", None), ("Could you give more context?", None), ("It is unclear.", None),
    ("A customer wants to know when something comes, so it depends.", None),
    ("As an AI I do not judge.", None), ("Can you say more about it?", None),
    ("Do you mean the card?", None), ("Card", None),
]  # fmt: skip

CLASSES = [
    "card arrival", "card delivery estimate", "card not working", "card payment fee charged",
    "cash withdrawal charge", "cash withdrawal not recognized", "change pin", "exchange rate",
    "exchange via app", "extra charge on statement", "failed transfer", "fiat currency support",
    "lost or stolen card", "passcode forgotten", "pending top up", "pending transfer",
    "refund not showing up", "request refund", "reverted card payment", "top up failed",
    "top up limits", "transfer timing", "unable to verify identity", "verify my identity",
    "virtual card not working", "visa or mastercard", "why verify identity", "wrong exchange rate",
]  # fmt: skip
"""More classes than letters: a reply names one by its text. The right one is `exchange rate`."""

TEXTS: list[tuple[str, str | None]] = [
    ("exchange rate", "exchange rate"), ("Exchange rate", "exchange rate"),
    ("exchange_rate", "exchange rate"), ("**exchange rate**", "exchange rate"),
    ("\"exchange rate\"", "exchange rate"), ("Exchange Rate.", "exchange rate"),
    ('{"answer": "exchange rate"}', "exchange rate"),
    ('{"class": "exchange_rate"}', "exchange rate"),
    ("The class is exchange rate.", "exchange rate"), ("Answer: exchange rate", "exchange rate"),
    ("The correct class is: exchange rate", "exchange rate"),
    ("Intent: exchange_rate", "exchange rate"),
    ("This is about the exchange rate.", "exchange rate"), ("exchnage rate", "exchange rate"),
    ("wrong exchange rate", "wrong exchange rate"), ("Wrong exchange rate.", "wrong exchange rate"),
    ("The class is wrong exchange rate.", "wrong exchange rate"),
    ("virtual card not working", "virtual card not working"),
    ("It is card not working, not virtual card not working.", "card not working"),
    ("<think>It might be card arrival.</think>exchange rate", "exchange rate"),
    ("It might be card arrival, but the best class is exchange rate.", "exchange rate"),
    ("The topic is exchange rate because a rate is asked for.", "exchange rate"),
    ("exchange rate\n\nThe user asks for a rate.", "exchange rate"),
    ("The user asks for a rate. \"wrong exchange rate\" would be a complaint.\n\nexchange rate",
     "exchange rate"),
    ("- request refund\n- exchange rate", None),
    ("request refund", "request refund"), ("refund", None), ("card", None), ("", None),
    ("exchange rate or wrong exchange rate or card arrival", None), ("no idea at all", None),
    ("card arrival or exchange rate", None), ("not exchange rate", None), ("none of these", None),
    ("<think>exchange rate", None), ('{"answer": "something else"}', None), ("B", None),
]  # fmt: skip
