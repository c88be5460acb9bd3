-- purpose: rule 1. The items of a call are settled one after another, each under pcall: one that fails leaves the others alone.
-- defines: each
-- `settle(at)` gets the index of the item's first argument and answers its verdict.
local function each(first, stride, settle)
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
