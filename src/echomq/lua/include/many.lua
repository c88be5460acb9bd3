-- purpose: one command for many words: a command costs more by being called from a script than by what it does.
-- defines: many_call
-- In pieces, for `unpack` fails at some 8,000 values; an even number of them, so that a pair stays together.
local PIECE = 1000
local function many_call(command, key, words)
  for first = 1, #words, PIECE do
    call(command, key, unpack(words, first, math.min(first + PIECE - 1, #words))) --!write piece
  end
end
