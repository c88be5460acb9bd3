-- purpose: rule 1. The items of a call are settled one after another, each under pcall: one that fails leaves the others alone.
-- defines: each, MOST_ITEMS
-- `settle(at)` gets the index of the item's first argument and answers its verdict. A call that is no whole number of
-- items, or has too many, is refused whole before the first of them.
local MOST_ITEMS = 256
local function each(first, stride, settle)
  local items = (#ARGV - first + 1) / stride
  if items % 1 ~= 0 or items > MOST_ITEMS then --!guard arity
    error({ err = 'EMQKIND malformed call: ' .. #ARGV - first + 1 .. ' arguments are not 1 to ' .. MOST_ITEMS .. ' items of ' .. stride })
  end
  local verdicts = {}
  local n = 0
  for at = first, #ARGV, stride do
    local fine, verdict = pcall(settle, at)
    if not fine then
      tally('torn')
      if type(verdict) == 'table' then verdict = verdict.err end
      verdict = 'EMQTORN ' .. tostring(verdict)
    end
    n = n + 1
    verdicts[n] = verdict
  end
  return verdicts
end
